//! `dlclose` never unmaps `libprezero_numpy.so`: arrays and scrubd outlive the module that loaded it.

fn main() {
    prezero_glibc::link::library();
}
