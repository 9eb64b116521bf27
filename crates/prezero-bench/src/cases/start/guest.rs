//! A guest that touches all of its memory, and says so: a kernel of a few instructions.
//!
//! By the Multiboot specification QEMU loads it at 1 MiB and starts it in 32-bit mode, without paging.
//! `ebx` leads to what is known of memory: at 8 its KiB from 1 MiB to the hole below 4 GiB.

use std::io;
use std::path::Path;

/// Where it is loaded.
const BASE: u32 = 1 << 20;
/// Bytes of the header.
const HEADER: u32 = 32;
/// What it writes to port 0xe9, QEMU's `-debugcon`.
const SAYS: &[u8] = b"touched\n\0";

/// From the start to the address of what it says.
#[rustfmt::skip]
const TOUCH: [u8; 34] = [
    0x8b, 0x4b, 0x08,                         // mov ecx, [ebx + 8]
    0xc1, 0xe1, 0x0a,                         // shl ecx, 10
    0x81, 0xc1, 0x00, 0x00, 0x10, 0x00,       // add ecx, 0x100000: the end of memory
    0xbf, 0x00, 0x00, 0x20, 0x00,             // mov edi, 0x200000: above all of this
    0xc7, 0x07, 0x01, 0x00, 0x00, 0x00,       // 1: mov dword [edi], 1
    0x81, 0xc7, 0x00, 0x10, 0x00, 0x00,       // add edi, 4096
    0x39, 0xcf,                               // cmp edi, ecx
    0x72, 0xf0,                               // jb 1b
    0xbe,                                     // mov esi, the address
];
/// From there to the end.
#[rustfmt::skip]
const TELL: [u8; 12] = [
    0xac,                                     // 2: lodsb
    0x84, 0xc0,                               // test al, al
    0x74, 0x04,                               // jz 3f
    0xe6, 0xe9,                               // out 0xe9, al
    0xeb, 0xf7,                               // jmp 2b
    0xf4,                                     // 3: hlt
    0xeb, 0xfd,                               // jmp 3b
];

/// Most memory of which all is below the hole, on QEMU's `pc`.
pub const MOST: u64 = 3 << 30;

/// Writes the kernel.
pub fn write(path: &Path) -> io::Result<()> {
    std::fs::write(path, image())
}

fn image() -> Vec<u8> {
    const MAGIC: u32 = 0x1bad_b002;
    /// Page-aligned modules, a map of memory, and addresses as below.
    const FLAGS: u32 = 1 << 16 | 0b11;
    let says = BASE + HEADER + (TOUCH.len() + 4 + TELL.len()) as u32;
    let end = says + SAYS.len() as u32;
    let checksum = MAGIC.wrapping_add(FLAGS).wrapping_neg();
    let header = [MAGIC, FLAGS, checksum, BASE, BASE, end, end, BASE + HEADER];
    let mut image: Vec<u8> = header.iter().flat_map(|field| field.to_le_bytes()).collect();
    image.extend(TOUCH);
    image.extend(says.to_le_bytes());
    image.extend(TELL);
    image.extend(SAYS);
    image
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_message_is_where_the_code_looks() {
        let image = image();
        let at = (HEADER as usize) + TOUCH.len();
        let address = u32::from_le_bytes(image[at..at + 4].try_into().unwrap());
        assert_eq!(&image[(address - BASE) as usize..], SAYS);
        let field = |at: usize| u32::from_le_bytes(image[at..at + 4].try_into().unwrap());
        assert_eq!(field(0).wrapping_add(field(4)).wrapping_add(field(8)), 0);
        assert_eq!((field(20) - BASE) as usize, image.len());
    }
}
