/* scrubd beside much thread-local data, some of it with a value from the beginning. */
#include "check.h"

static __thread char zero[200 * MIB];
static __thread char filled[8 * MIB] = { 1 };

int main(void)
{
	size_t before;

	memset(zero, 1, sizeof zero);
	memset(filled + 1, 1, sizeof filled - 1);
	before = resident();
	UNTIL((use_and_free(), thread_named("scrubd")));
	use_and_free();
	CHECK(resident() < before + 64 * MIB);
	CHECK(zero[sizeof zero - 1] == 1 && filled[0] == 1);
	puts("good");
	return 0;
}
