/* A library with thread-locals. */
#include <pthread.h>

static __thread char room[4096];

char *local_room(void)
{
	return room;
}
