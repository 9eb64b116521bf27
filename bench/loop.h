/* The loop that `prezero bench grid` times: compiled once, run by every worker and by the ideal. */
#ifndef LOOP_H
#define LOOP_H

#include <stddef.h>

/* Writes one byte to each of `lines` cache lines, spread evenly, of each page; 1 to 64 lines. */
void touch_lines(volatile char *p, size_t bytes, size_t lines);

#endif
