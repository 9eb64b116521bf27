// A program whose operator new is its own: a pool for what is small, pages of its own beyond.
#include <cstdio>
#include <cstdlib>
#include <map>
#include <new>
#include <string>
#include <sys/mman.h>
#include <vector>

static char pool[1 << 20];
static size_t used;

static void *take(size_t size)
{
	size = (size + 15) / 16 * 16 + 16;
	char *at = nullptr;

	if (size < 4096 && used + size <= sizeof pool)
		at = pool + __atomic_fetch_add(&used, size, __ATOMIC_RELAXED);
	else if (size < (3 << 20))
		at = static_cast<char *>(std::malloc(size));
	else
		at = static_cast<char *>(mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
	if (!at || at == MAP_FAILED)
		throw std::bad_alloc();
	*reinterpret_cast<size_t *>(at) = size;
	return at + 16;
}

static void give(void *block) noexcept
{
	if (!block)
		return;
	char *at = static_cast<char *>(block) - 16;
	size_t size = *reinterpret_cast<size_t *>(at);

	if (at >= pool && at < pool + sizeof pool)
		return;
	if (size < (3 << 20))
		std::free(at);
	else if (munmap(at, size) != 0)
		std::abort();
}

void *operator new(size_t size) { return take(size); }
void *operator new[](size_t size) { return take(size); }
void operator delete(void *block) noexcept { give(block); }
void operator delete[](void *block) noexcept { give(block); }
void operator delete(void *block, size_t) noexcept { give(block); }
void operator delete[](void *block, size_t) noexcept { give(block); }

int main()
{
	std::map<int, std::string> texts;
	std::vector<unsigned> numbers;
	unsigned long sum = 0;

	for (int i = 0; i < 3000; i++)
		texts[i * 7919 % 3001] = std::string(i % 700 * 300, 'a' + i % 26);
	for (unsigned i = 0; i < 3000000; i++)
		numbers.push_back(i * 2654435761u);
	for (auto &[number, text] : texts)
		sum = sum * 31 + number + text.size() + (text.empty() ? 0 : text.back());
	for (unsigned number : numbers)
		sum = sum * 31 + number;
	for (int i = 0; i < 200; i++) {
		char *zero = static_cast<char *>(std::calloc(i + 1, 10000));
		for (int at = 0; at < (i + 1) * 10000; at += 97)
			sum += zero[at];
		zero[i] = 1;
		std::free(zero);
	}
	std::printf("%lu\n", sum);
}
