//! Links the program without the shared unwinder.

fn main() {
    prezero_glibc::link::program();
}
