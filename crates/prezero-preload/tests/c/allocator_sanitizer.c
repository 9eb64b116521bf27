/* What AddressSanitizer is for. */
#include "check.h"

int main(void)
{
	volatile unsigned char *block = malloc(200000);

	puts("allocated");
	fflush(stdout);
	block[200000] = 1;
	free((void *)block);
	return 0;
}
