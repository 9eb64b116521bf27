#include "loop.h"

enum { PAGE = 4096 };

void touch_lines(volatile char *p, size_t bytes, size_t lines)
{
	size_t step = PAGE / lines;

	for (size_t page = 0; page < bytes; page += PAGE)
		for (size_t line = 0; line < lines; line++)
			p[page + line * step] = 1;
}
