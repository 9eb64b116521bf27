//! Commands whose words cannot be written: a disk that is full, a reader that is gone.

use std::fs::OpenOptions;
use std::process::{Command, Stdio};

use prezero_testing::alone;

fn prezero(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_prezero"));
    command.args(arguments);
    command
}

fn full() -> Stdio {
    OpenOptions::new().write(true).open("/dev/full").unwrap().into()
}

/// The writing end of a pipe without a reader.
fn unread() -> Stdio {
    std::io::pipe().unwrap().1.into()
}

#[test]
fn a_message_that_cannot_be_written_changes_no_status() {
    let _alone = alone();
    for stderr in [full(), unread()] {
        let status = prezero(&["run", "--", "/no/such/program"]).stderr(stderr).status();
        assert_eq!(status.unwrap().code(), Some(127));
    }
    for stderr in [full(), unread()] {
        let status = prezero(&["stock", "--socket", "/no/such/socket"]).stderr(stderr).status();
        assert_eq!(status.unwrap().code(), Some(1));
    }
    for stderr in [full(), unread()] {
        let status = prezero(&["ctl", "set"]).stderr(stderr).status();
        assert_eq!(status.unwrap().code(), Some(2));
    }
}

#[test]
fn help_that_cannot_be_written_is_no_success() {
    let _alone = alone();
    for arguments in [&["--help"][..], &["run", "--help"], &["--version"]] {
        let output = prezero(arguments).stdout(full()).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!((output.status.code(), said.lines().count()), (Some(1), 1), "{said}");
        let output = prezero(arguments).stdout(unread()).output().unwrap();
        assert_eq!((output.status.code(), output.stderr.as_slice()), (Some(141), &b""[..]));
        assert!(prezero(arguments).stdout(Stdio::null()).status().unwrap().success());
    }
}

#[test]
fn a_locale_without_other_letters_has_ascii_alone() {
    let _alone = alone();
    let engines = |locale| {
        let output = prezero(&["engines"]).env("LC_ALL", locale).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    assert!(engines("C").is_ascii() && engines("C.UTF-8").contains('─'));
}

#[test]
fn output_for_a_full_disk_fails_in_one_line_and_for_no_reader_in_silence() {
    let _alone = alone();
    let output = prezero(&["engines"]).stdout(full()).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!((output.status.code(), said.lines().count()), (Some(1), 1), "{said}");
    assert!(said.starts_with("prezero: engines: No space left"), "{said}");

    let output = prezero(&["engines"]).stdout(unread()).output().unwrap();
    assert_eq!((output.status.code(), output.stderr.as_slice()), (Some(141), &b""[..]));
}
