//! What a virtual machine knows of its hypervisor.

use std::ffi::CStr;

use rustix::fs::{CWD, Mode, OFlags, openat};

/// Names that a balloon device may have: it is one of the first devices of a machine.
const NAMES: [&CStr; 8] = [
    c"/sys/bus/virtio/drivers/virtio_balloon/virtio0/features",
    c"/sys/bus/virtio/drivers/virtio_balloon/virtio1/features",
    c"/sys/bus/virtio/drivers/virtio_balloon/virtio2/features",
    c"/sys/bus/virtio/drivers/virtio_balloon/virtio3/features",
    c"/sys/bus/virtio/drivers/virtio_balloon/virtio4/features",
    c"/sys/bus/virtio/drivers/virtio_balloon/virtio5/features",
    c"/sys/bus/virtio/drivers/virtio_balloon/virtio6/features",
    c"/sys/bus/virtio/drivers/virtio_balloon/virtio7/features",
];
/// `VIRTIO_BALLOON_F_REPORTING` (virtio 1.2, 5.5.3), as sysfs writes it: a digit for each bit.
const REPORTING: usize = 5;

/// Whether free memory is reported to the hypervisor, which takes it away until it is touched
/// again (Linux' `mm/page_reporting.c`, from huge blocks on): a new huge page then costs some
/// milliseconds instead of a tenth of one. Uses no heap, and system calls only.
pub fn reports_free_memory() -> bool {
    let reports = |name: &CStr| {
        let file = openat(CWD, name, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok()?;
        let mut bits = [0u8; 64];
        let n = rustix::io::read(&file, &mut bits).ok()?;
        Some(has_reporting(&bits[..n]))
    };
    NAMES.into_iter().find_map(reports).unwrap_or(false)
}

fn has_reporting(features: &[u8]) -> bool {
    features.get(REPORTING) == Some(&b'1')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_are_read_from_the_left() {
        assert!(has_reporting(b"01100101000000000000000000000000100000\n"));
        assert!(!has_reporting(b"11111011000000000000000000000000100000\n"));
        assert!(!has_reporting(b"11111"));
        assert!(!has_reporting(b""));
        reports_free_memory();
    }
}
