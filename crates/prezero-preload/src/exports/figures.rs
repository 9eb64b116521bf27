//! What libc tells of its heap, and is told: its own figures, and the zone's with them.
//!
//! | figure | zone |
//! |---|---|
//! | blocks in mappings of their own (`hblks`, `hblkhd`; `mmap` of `malloc_info`) | its live blocks |
//! | heaps, and what is free in them (`arena`, `fordblks`; `system current` and `rest`) | its free memory that is resident |
//!
//! A program adds `uordblks` and `hblkhd` for what it uses, and `arena` and `hblkhd` for what it has.

use std::ffi::{c_char, c_int};
use std::ptr;

use libc::FILE;

use super::family::free;
use super::the_programs;
use crate::compat::next::{self, Mallinfo};
use crate::process;

/// The zone's part of the figures, bytes.
#[derive(Clone, Copy, Default)]
struct Zone {
    blocks: usize,
    used: usize,
    idle: usize,
}

impl Zone {
    fn look() -> Zone {
        process::ready_and_own().map_or(Zone::default(), |heap| {
            let live = heap.live();
            Zone { blocks: live.blocks, used: live.bytes, idle: heap.idle() }
        })
    }
}

/// libc's `mallinfo2`.
///
/// # Safety
/// As in libc.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mallinfo2() -> Mallinfo<usize> {
    // SAFETY: the caller keeps the contract of `mallinfo2`.
    let (info, zone) = (unsafe { next::mallinfo2() }, Zone::look());
    Mallinfo {
        arena: info.arena + zone.idle,
        hblks: info.hblks + zone.blocks,
        hblkhd: info.hblkhd + zone.used,
        fordblks: info.fordblks + zone.idle,
        ..info
    }
}

/// libc's `mallinfo`, whose figures wrap.
///
/// # Safety
/// As in libc.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mallinfo() -> Mallinfo<c_int> {
    // SAFETY: the caller keeps the contract of `mallinfo`.
    let (info, zone) = (unsafe { next::mallinfo() }, Zone::look());
    let add = |figure: c_int, more: usize| figure.wrapping_add(more as c_int);
    Mallinfo {
        arena: add(info.arena, zone.idle),
        hblks: add(info.hblks, zone.blocks),
        hblkhd: add(info.hblkhd, zone.used),
        fordblks: add(info.fordblks, zone.idle),
        ..info
    }
}

/// libc's `malloc_info`: its text, with the zone's figures added in the totals.
///
/// # Safety
/// As in libc.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn malloc_info(options: c_int, stream: *mut FILE) -> c_int {
    let (mut text, mut len) = (ptr::null_mut::<c_char>(), 0usize);
    // SAFETY: both outlive the stream. The caller's terms.
    unsafe {
        let memory = libc::open_memstream(&raw mut text, &raw mut len);
        if memory.is_null() {
            return next::malloc_info(options, stream);
        }
        let answer = next::malloc_info(options, memory);
        libc::fclose(memory);
        if answer == 0 && !text.is_null() {
            let all = std::slice::from_raw_parts(text.cast::<u8>(), len);
            with_zone(all, Zone::look(), |part| {
                libc::fwrite(part.as_ptr().cast(), 1, part.len(), stream);
            });
        }
        // libc has it from the program's `malloc`.
        the_programs(free as unsafe extern "C" fn(_))(text.cast());
        answer
    }
}

/// Says a text of `malloc_info` piece by piece, with the zone's figures added in the totals at its end.
fn with_zone(text: &[u8], zone: Zone, mut say: impl FnMut(&[u8])) {
    let totals = find_last(text, b"<total type=\"rest\"").unwrap_or(text.len());
    let (before, mut rest) = text.split_at(totals);
    say(before);
    let figures: [(&[u8], usize); 4] = [
        (b"<total type=\"rest\" count=\"", 0),
        (b" size=\"", zone.idle),
        (b"<total type=\"mmap\" count=\"", zone.blocks),
        (b" size=\"", zone.used),
    ];
    for (name, more) in
        figures.into_iter().chain([(&b"<system type=\"current\" size=\""[..], zone.idle)])
    {
        let Some(at) = rest.windows(name.len()).position(|part| part == name) else { break };
        let (name, behind) = rest.split_at(at + name.len());
        let digits = behind.iter().take_while(|byte| byte.is_ascii_digit()).count();
        let figure = behind[..digits]
            .iter()
            .fold(0usize, |n, digit| n.wrapping_mul(10).wrapping_add(usize::from(digit - b'0')));
        say(name);
        say_number(figure.wrapping_add(more), &mut say);
        rest = &behind[digits..];
    }
    say(rest);
}

fn find_last(text: &[u8], name: &[u8]) -> Option<usize> {
    text.windows(name.len()).rposition(|part| part == name)
}

fn say_number(mut number: usize, say: &mut impl FnMut(&[u8])) {
    let (mut digits, mut at) = ([0u8; 20], 20);
    while at == 20 || number > 0 {
        at -= 1;
        digits[at] = b'0' + (number % 10) as u8;
        number /= 10;
    }
    say(&digits[at..]);
}

/// libc's `mallopt`. A program that forbids glibc both mappings and trims has free memory stay where it is, as
/// registration caches want it, so the zone's stays as well. All else is for the next allocator.
///
/// # Safety
/// As in libc.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mallopt(parameter: c_int, value: c_int) -> c_int {
    // SAFETY: the caller keeps the contract of `mallopt`.
    let done = unsafe { next::mallopt(parameter, value) };
    if done != 0 {
        process::no_move::note(parameter, value);
    }
    done
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "<malloc version=\"1\">\n<heap nr=\"0\">\n<total type=\"rest\" count=\"1\" size=\"7\"/>\n\
        <system type=\"current\" size=\"7\"/>\n</heap>\n<total type=\"rest\" count=\"1\" size=\"7\"/>\n\
        <total type=\"mmap\" count=\"9\" size=\"990\"/>\n<system type=\"current\" size=\"7\"/>\n</malloc>\n";

    fn said(text: &str) -> String {
        let zone = Zone { blocks: 2, used: 100, idle: 30 };
        let mut all = Vec::new();
        with_zone(text.as_bytes(), zone, |part| all.extend_from_slice(part));
        String::from_utf8(all).unwrap()
    }

    #[test]
    fn the_totals_alone_have_the_zones_figures() {
        let (heap, totals) = TEXT.split_once("</heap>").unwrap();
        let totals = totals.replace("\"7\"", "\"37\"").replace("\"9\"", "\"11\"");
        assert_eq!(said(TEXT), format!("{heap}</heap>{}", totals.replace("990", "1090")));
    }

    #[test]
    fn other_texts_are_passed_on() {
        for text in ["", "<malloc/>", "<total type=\"rest\"", "<total type=\"rest\" count=\""] {
            assert_eq!(said(text).trim_end_matches('0'), text);
        }
    }
}
