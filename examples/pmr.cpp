/*
 * Containers of std::pmr with their large blocks from the zone, and a table that is zero.
 *
 * Run: c++ -std=c++17 examples/pmr.cpp $(pkg-config --cflags --libs prezero) -o pmr && ./pmr
 */
#include <prezero.hpp>

#include <chrono>
#include <cstdio>
#include <thread>
#include <vector>

int main()
{
	constexpr std::size_t cells = 1 << 20;
	long sum = 0;

	for (int round = 0; round < 50; round++) {
		std::pmr::vector<int> numbers(prezero::resource());
		for (int each = 0; each < 100000; each++)
			numbers.push_back(each);
		/* Counts by last digits: few cells are touched, and all must begin as 0. */
		int *counts = static_cast<int *>(prezero::resource()->zeroed(cells * sizeof(int), PREZERO_SPARSE));
		for (int number : numbers)
			counts[number * 7919L % cells]++;
		sum += counts[7919];
		prezero::resource()->deallocate(counts, cells * sizeof(int));
		std::this_thread::sleep_for(std::chrono::milliseconds(5));
	}
	std::printf("counted %ld times in 50 rounds\n", sum);
	return sum != 50;
}
