/*
 * prezero.hpp - prezero's zone as a memory resource of C++17 (std::pmr).
 *
 * For programs that run with libprezero.so, preloaded or linked. Containers over prezero::resource() have their large
 * blocks from the zone, as all that malloc serves; what std::pmr cannot say, that memory is to be zero, zeroed() says.
 */
#ifndef PREZERO_HPP
#define PREZERO_HPP

#include <cstddef>
#include <cstdlib>
#include <memory_resource>
#include <new>

#include "prezero.h"

namespace prezero {

class zone_resource : public std::pmr::memory_resource {
public:
	/*
	 * Zeroed memory, cleared ahead of time where there is some. Given back by deallocate(), with the same size and
	 * an alignment of at most that of std::max_align_t.
	 */
	void *zeroed(std::size_t bytes, enum prezero_use first_use = PREZERO_UNKNOWN)
	{
		return present(prezero_zalloc_for(bytes ? bytes : 1, first_use));
	}

protected:
	void *do_allocate(std::size_t bytes, std::size_t alignment) override
	{
		if (bytes == 0)
			bytes = 1;
		if (alignment <= alignof(std::max_align_t))
			return present(prezero_alloc(bytes));
		/* aligned_alloc wants a multiple of the alignment. */
		std::size_t whole = (bytes + alignment - 1) & ~(alignment - 1);
		if (whole < bytes)
			throw std::bad_alloc();
		return present(std::aligned_alloc(alignment, whole));
	}

	void do_deallocate(void *block, std::size_t, std::size_t) override
	{
		prezero_free(block);
	}

	/* Each can give back what another gave: the process has one zone. */
	bool do_is_equal(const std::pmr::memory_resource &other) const noexcept override
	{
		return dynamic_cast<const zone_resource *>(&other) != nullptr;
	}

private:
	static void *present(void *block)
	{
		if (!block)
			throw std::bad_alloc();
		return block;
	}
};

/* The resource of the process. It is never destroyed: containers of static lifetime may use it to the end. */
inline zone_resource *resource()
{
	static zone_resource *const only = new zone_resource;
	return only;
}

} /* namespace prezero */

#endif
