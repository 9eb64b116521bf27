//! Purge: how idle memory goes back to the kernel, and what the kernel is told of it before.
//!
//! | file | call | what becomes of the pages |
//! |---|---|---|
//! | `age` | `MADV_DONTNEED` | absent: idle for their time, under pressure, or before others are faulted in |
//! | `lazy_free` | `MADV_FREE` | the kernel takes them when it lacks some: below the limit of a cgroup |
//! | `no_dump` | `MADV_DONTDUMP` | left out of core dumps |
//! | `wipe_on_fork` | `MADV_WIPEONFORK` | a child reads zeroes, and no page table is copied for them |
//! | `unmap` | `munmap` | address space that is the zone's no more |

pub(crate) mod age;
pub(crate) mod lazy_free;
pub(crate) mod no_dump;
pub(crate) mod unmap;
pub(crate) mod wipe_on_fork;
