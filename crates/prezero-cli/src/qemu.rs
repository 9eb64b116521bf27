//! A QEMU's memory objects: found in a command line, and what becomes of those that a lease serves.
//!
//! `prezero claim` has objects that name the lease, and gives them what a lease needs; without a
//! lease they become memory of QEMU's own. `prezero-qemu` has objects that name no file, and puts a
//! lease under those that can have one.

mod object;

pub use object::{Mention, Object, Value, mentions};

/// QEMU's memory of a file, which a lease is.
pub const FILE: &str = "memory-backend-file";
/// QEMU's shared memory without a name.
pub const MEMFD: &str = "memory-backend-memfd";
/// QEMU's private memory.
const RAM: &str = "memory-backend-ram";

/// Properties of a file that other memory has not.
const OF_A_FILE: [&str; 7] =
    ["mem-path", "align", "discard-data", "pmem", "readonly", "rom", "offset"];
/// Properties of memory without a name that a file has not.
const OF_A_MEMFD: [&str; 3] = ["hugetlb", "hugetlbsize", "seal"];

/// Whether that is QEMU, by its name.
pub fn is_qemu(program: &str) -> bool {
    program.starts_with("qemu-system-") || ["qemu-kvm", "kvm"].contains(&program)
}

/// Has the memory begin where one of the lease's pages may: elsewhere each 4 KiB take a fault.
pub fn align(object: &mut Object, page: u64) {
    object.set("align", Value::Number(page));
}

/// Puts a lease of this path and page size under memory without a name.
pub fn lease(object: &mut Object, path: &str, page: u64) {
    OF_A_MEMFD.iter().for_each(|key| object.remove(key));
    object.set("qom-type", Value::Text(FILE.into()));
    object.set("mem-path", Value::Text(path.into()));
    object.set("share", Value::Bool(true));
    align(object, page);
}

/// Turns memory of a lease into memory of QEMU's own. `arguments` are those of QEMU: a device whose
/// other half is another process needs shared memory.
pub fn own(object: &mut Object, arguments: &[&str]) {
    OF_A_FILE.iter().for_each(|key| object.remove(key));
    let others = ["vhost-user", "vfio-user", "x-remote", "x-vfio-user"];
    let is_shared =
        arguments.iter().any(|argument| others.iter().any(|other| argument.contains(other)));
    object.set("qom-type", Value::Text(if is_shared { MEMFD } else { RAM }.into()));
    if !is_shared {
        object.remove("share");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn changed(word: &str, change: impl Fn(&mut Object)) -> String {
        let mut object = Object::parse(word).unwrap();
        change(&mut object);
        object.to_string()
    }

    #[test]
    fn a_lease_takes_the_place_of_memory_without_a_name() {
        let with_lease = |word: &str| changed(word, |object| lease(object, "/p/3", 2 << 20));
        assert_eq!(
            with_lease(
                "memory-backend-memfd,id=m,size=4G,hugetlb=on,hugetlbsize=2M,share=on,prealloc=on"
            ),
            "memory-backend-file,id=m,size=4G,share=on,prealloc=on,mem-path=/p/3,align=2097152"
        );
        let json = r#"{"qom-type":"memory-backend-memfd","id":"ram-node0","share":true,"size":1073741824,"host-nodes":[0],"policy":"bind"}"#;
        let object = Object::parse(&with_lease(json)).unwrap();
        assert_eq!(object.kind(), Some(FILE.into()));
        assert_eq!(object.get("align"), Some("2097152".into()));
        assert_eq!(object.get("mem-path"), Some("/p/3".into()));
        assert!(with_lease(json).contains(r#""host-nodes":[0]"#));
    }

    #[test]
    fn without_a_lease_memory_is_what_it_is_without_prezero() {
        let word = "memory-backend-file,id=m,size=4G,mem-path={lease},share=on,align=2M";
        let with = |words: &[&str]| changed(word, |object| own(object, words));
        assert_eq!(with(&["-m", "4G"]), "memory-backend-ram,id=m,size=4G");
        assert_eq!(
            with(&["-chardev", "socket,id=c,path=/c", "-netdev", "vhost-user,chardev=c"]),
            "memory-backend-memfd,id=m,size=4G,share=on"
        );
    }
}
