//! Programs behind the shim, each a child process: one module a topic, as the C programs in `../c` are named.

mod allocator;
mod dlopen;
mod family;
mod fork;
mod free;
mod layout;
mod limits;
mod mappings;
mod programs;
mod realloc;
mod report;
mod run;
mod sandbox;
mod scrubd;
mod start;
mod threads;
