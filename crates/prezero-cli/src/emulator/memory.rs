//! Whether a memory object of QEMU can be a lease, and of which one.

use prezerod::protocol::{Page, Want};

use crate::qemu::{MEMFD, Object};

/// See the module.
#[derive(PartialEq, Debug)]
pub enum Memory {
    /// It can.
    Leased(Leased),
    /// It looks as if, and cannot: why.
    Unfit(&'static str),
    /// It is not shared memory without a name.
    Other,
}

/// What a lease has to be.
#[derive(PartialEq, Debug)]
pub struct Leased {
    pub want: Want,
    pub pages: Pages,
}

/// Of which pages it may be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Pages {
    /// The guest asked for none in particular.
    Any,
    /// It asked for those of the hugetlb pool.
    OfThePool,
}

/// Of shared memory without a name; QEMU shares it unless it is told not to.
pub fn of(object: &Object) -> Memory {
    if object.kind().as_deref() != Some(MEMFD) || object.is_on("share") == Some(false) {
        return Memory::Other;
    }
    let Some(bytes) = object.bytes("size") else {
        return Memory::Unfit("its size is no number of bytes");
    };
    let pool = object.is_on("hugetlb") == Some(true);
    let size = object.get("hugetlbsize").filter(|_| pool);
    let page = match size {
        None => Some(Page::Huge),
        Some(_) => object.bytes("hugetlbsize").and_then(Page::of),
    };
    let Some(page) = page else { return Memory::Unfit("no lease has pages of its hugetlbsize") };
    let nodes = object.list("host-nodes");
    let node = match &nodes[..] {
        [] => None,
        [node] => match node.parse() {
            Ok(node) => Some(node),
            Err(_) => return Memory::Unfit("a lease is on one node"),
        },
        _ => return Memory::Unfit("a lease is on one node"),
    };
    // A file may be larger than the memory that is made of it.
    let bytes = bytes.next_multiple_of(page.bytes());
    let pages = if pool { Pages::OfThePool } else { Pages::Any };
    Memory::Leased(Leased { want: Want { bytes, page, node }, pages })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_is_as_the_memory_that_it_stands_for() {
        let want = |bytes, page, node| Want { bytes, page, node };
        for (word, wanted, pages) in [
            ("size=4G", want(4 << 30, Page::Huge, None), Pages::Any),
            ("size=1025K,share=on", want(2 << 20, Page::Huge, None), Pages::Any),
            ("size=1G,hugetlbsize=1G", want(1 << 30, Page::Huge, None), Pages::Any),
            ("size=1G,hugetlb=on", want(1 << 30, Page::Huge, None), Pages::OfThePool),
            (
                "size=1G,hugetlb=on,hugetlbsize=1G,host-nodes=1,policy=bind",
                want(1 << 30, Page::Giant, Some(1)),
                Pages::OfThePool,
            ),
        ] {
            let object = Object::parse(&format!("{MEMFD},id=m,{word}")).unwrap();
            let leased = Leased { want: wanted, pages };
            assert_eq!(of(&object), Memory::Leased(leased), "{word}");
        }
    }

    #[test]
    fn other_memory_stays_as_it_is() {
        for (word, unfit) in [
            ("memory-backend-ram,size=1G,share=on", false),
            ("memory-backend-memfd,size=1G,share=off", false),
            ("memory-backend-memfd,size=1G,hugetlb=on,hugetlbsize=16M", true),
            ("memory-backend-memfd,size=1G,host-nodes=0-1,policy=interleave", true),
            ("memory-backend-memfd,size=1G,host-nodes=0,host-nodes=1", true),
            ("memory-backend-memfd,size=x", true),
        ] {
            let memory = of(&Object::parse(word).unwrap());
            assert_eq!(matches!(memory, Memory::Unfit(_)), unfit, "{word}");
            assert_eq!(memory == Memory::Other, !unfit, "{word}");
        }
    }
}
