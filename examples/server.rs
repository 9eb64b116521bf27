//! A Rust server whose allocator is prezero's: each request fills a buffer that is zero already.
//!
//! Run: cargo run --quiet -p prezero --example server
#![allow(clippy::print_stdout, reason = "an example says what it did")]

use prezero::Global;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::{thread, time::Duration};

#[global_allocator]
static ALLOCATOR: Global = Global::system();

/// How long its answer is, in bytes.
const PAGE: usize = 4 << 20;
const REQUESTS: usize = 50;

fn answer(mut client: TcpStream) -> std::io::Result<()> {
    let mut size = [0; 4];
    client.read_exact(&mut size)?;
    let mut page = vec![0u8; u32::from_le_bytes(size) as usize]; // `alloc_zeroed`
    page[..size.len()].copy_from_slice(&size);
    client.write_all(&page)
}

fn main() -> std::io::Result<()> {
    let server = TcpListener::bind("127.0.0.1:0")?;
    let place = server.local_addr()?;
    thread::spawn(move || server.incoming().flatten().try_for_each(answer));
    let mut got = 0;
    for _ in 0..REQUESTS {
        let mut client = TcpStream::connect(place)?;
        client.write_all(&(PAGE as u32).to_le_bytes())?;
        got += client.read_to_end(&mut Vec::with_capacity(PAGE))?;
        thread::sleep(Duration::from_millis(5)); // until the next request; scrubd clears meanwhile
    }
    println!("{} MiB in answers, {} MiB were zero already", got >> 20, ALLOCATOR.hit_bytes() >> 20);
    Ok(())
}
