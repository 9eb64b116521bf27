/* What may be done with memory: one function for each call, which makes it and keeps the model. */
#ifndef CALLS_H
#define CALLS_H

#include "area.h"

#define AREAS 48
/* Bytes that one thread holds at most. */
#define MOST (96 * MIB)

struct hands {
	struct area areas[AREAS];
	size_t held;
};

struct area *hands_any(struct hands *h, bool free_slot);
void hands_drop(struct hands *h, struct area *a);
void hands_check(struct hands *h);

/* The malloc family. */
void call_allocate(struct hands *h);
void call_free(struct hands *h, struct area *a);
void call_realloc(struct hands *h, struct area *a);

/* The mm calls, on whole pages of an area. */
void call_pages(struct hands *h, struct area *a);
void call_map(struct hands *h);

/* Other processes. */
void call_fork(struct hands *h);
void call_spawn(void);
/* The kernel reads and writes the area for us. */
void call_kernel(struct area *a);

#endif
