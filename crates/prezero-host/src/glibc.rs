//! glibc told to keep its memory: the peer that a program can have without any library.

/// Variables with which glibc gives no memory back. The threshold is more than any block, so that glibc never takes a
/// mapping of its own for one and never trims its heap. The threshold alone would do from glibc 2.35 on; before, it is
/// capped at 32 MiB, and larger blocks stay only with no mappings allowed at all.
pub const KEEP: [(&str, &str); 3] = [
    ("MALLOC_MMAP_MAX_", "0"),
    ("MALLOC_MMAP_THRESHOLD_", "68719476736"),
    ("MALLOC_TRIM_THRESHOLD_", "68719476736"),
];
