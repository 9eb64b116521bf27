//! Links the library so that `dlclose` never unmaps it: what it exports stays called.

fn main() {
    prezero_glibc::link::library();
}
