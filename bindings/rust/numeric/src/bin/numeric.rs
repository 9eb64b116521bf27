//! With the allocator that the program is started with. `CASE SECONDS global` starts its sibling.

use std::os::unix::process::CommandExt;
use std::process::Command;

fn main() {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    if arguments.last().is_some_and(|last| last == "global") {
        let sibling = std::env::current_exe().expect("a path").with_file_name("numeric-global");
        panic!("{sibling:?}: {}", Command::new(&sibling).args(arguments).exec());
    }
    numeric::main();
}
