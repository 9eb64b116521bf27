//! With prezero as its allocator: these two lines are all that differs.

#[global_allocator]
static ALLOCATOR: prezero::Global = prezero::Global::system();

fn main() {
    numeric::main();
    assert!(ALLOCATOR.snapshot().is_some(), "no request reached the zone");
}
