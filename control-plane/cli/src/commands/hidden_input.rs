//! A secret that is typed at the terminal and not shown there.
//!
//! Keeps true: the terminal gets its modes back on every path. Ctrl-C is one of them, because it arrives here as a key and not
//! as a signal; a signal of another process is one if the caller listens for it and drops the question. What was typed or pasted
//! beyond the line is discarded, so that no shell shows or runs it.

use std::io::BufRead;
use std::os::fd::AsFd;

use anyhow::Context;
use asp_command::failure::Failure;
use asp_command::print;
use asp_platform::secret::Secret;
use rustix::termios::{LocalModes, OptionalActions, SpecialCodeIndex, Termios, tcgetattr, tcsetattr};
use tokio::sync::oneshot;

/// Longest secret, in bytes.
const MAX_TYPED: usize = 16 << 10;
/// Keys of a terminal without line editing: Ctrl-C, Ctrl-D, Ctrl-U and Ctrl-\.
const INTERRUPT: u8 = 0x03;
const END: u8 = 0x04;
const CLEAR: u8 = 0x15;
const QUIT: u8 = 0x1c;
/// Number of the signal that Ctrl-C stands for.
const SIGINT: u8 = 2;

/// Asks for the secret of an option at the terminal, which has its modes back when the future is dropped.
pub(super) async fn ask(option: &'static str, what: &str) -> Result<Secret, Failure> {
    let _hidden = HiddenInput::start(std::io::stdin())?;
    print::note(&format!("{option}: {what}? It is not shown."));
    let (answer, typed) = oneshot::channel();
    let read = move || {
        // Err: the question was dropped.
        let _ = answer.send(read_line(std::io::stdin().lock(), option));
    };
    // A thread that nothing waits for: only a key ends its read.
    std::thread::Builder::new().name("hidden-input".to_owned()).spawn(read).context("read the terminal")?;
    typed.await.context("read the terminal")?
}

/// A terminal that shows nothing of what is typed, until this is dropped.
struct HiddenInput<T: AsFd> {
    terminal: T,
    modes: Termios,
}

impl<T: AsFd> HiddenInput<T> {
    fn start(terminal: T) -> Result<HiddenInput<T>, Failure> {
        let modes = tcgetattr(&terminal).context("read the modes of the terminal")?;
        let mut hidden = modes.clone();
        // Line editing and signals too: a key that ends this process would leave the terminal as it is.
        hidden.local_modes.remove(
            LocalModes::ECHO
                | LocalModes::ECHONL
                | LocalModes::ICANON
                | LocalModes::ISIG
                | LocalModes::IEXTEN,
        );
        hidden.special_codes[SpecialCodeIndex::VMIN] = 1;
        hidden.special_codes[SpecialCodeIndex::VTIME] = 0;
        tcsetattr(&terminal, OptionalActions::Flush, &hidden).context("hide what is typed")?;
        Ok(HiddenInput { terminal, modes })
    }
}

impl<T: AsFd> Drop for HiddenInput<T> {
    fn drop(&mut self) {
        if tcsetattr(&self.terminal, OptionalActions::Flush, &self.modes).is_err() {
            print::note("the terminal still hides what is typed: enter `stty sane`");
        }
    }
}

/// Reads keys up to the end of the line.
fn read_line(keys: impl BufRead, option: &str) -> Result<Secret, Failure> {
    let mut typed: Vec<u8> = Vec::new();
    for key in keys.bytes() {
        match key.context("read the terminal")? {
            b'\r' | b'\n' | END => break,
            INTERRUPT | QUIT => return Err(Failure::Signalled(SIGINT)),
            // The last character, with the bytes of UTF-8 that continue it.
            0x08 | 0x7f => while typed.pop().is_some_and(|byte| byte & 0xc0 == 0x80) {},
            CLEAR => typed.clear(),
            key if key.is_ascii_control() => {}
            _ if typed.len() >= MAX_TYPED => return Err(Failure::bad(option, "is too long")),
            key => typed.push(key),
        }
    }
    let text = String::from_utf8(typed).map_err(|_| Failure::bad(option, "is not valid text"))?;
    match text.trim() {
        "" => Err(Failure::bad(option, "is empty")),
        secret => Ok(Secret::from(secret)),
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::{BufReader, Write};

    use rustix::pty::{OpenptFlags, ioctl_tiocgptpeer, openpt, unlockpt};

    use super::*;

    fn read(keys: &[u8]) -> Result<String, String> {
        match read_line(keys, "--x") {
            Ok(secret) => Ok(secret.expose().to_owned()),
            Err(Failure::Signalled(signal)) => Err(format!("signal {signal}")),
            Err(Failure::Configuration(faults)) => Err(faults[0].message.clone()),
            Err(other) => Err(other.to_string()),
        }
    }

    #[test]
    fn keys_of_a_line_are_a_secret_and_the_rest_is_not_read() {
        let long = [b"x".repeat(MAX_TYPED), b"\n".to_vec()].concat();
        assert_eq!(read(&long).map(|secret| secret.len()), Ok(MAX_TYPED));
        for (keys, secret) in [
            (&b"s3cret\nls\n"[..], Ok("s3cret")),
            (b"s3cret\r", Ok("s3cret")),
            (b" s3cret \n", Ok("s3cret")),
            (b"s3cx\x7fret\n", Ok("s3cret")),
            (b"s3c\xc3\xa4\x08ret\n", Ok("s3cret")),
            (b"\x7f\x7fs3cret\n", Ok("s3cret")),
            (b"other\x15s3cret\n", Ok("s3cret")),
            (b"s3\tc\x1aret\n", Ok("s3cret")),
            (b"s3cret\x04more", Ok("s3cret")),
            (b"s3cret", Ok("s3cret")),
            (b"s3cret\x03\n", Err("signal 2")),
            (b"\x1c", Err("signal 2")),
            (b"", Err("is empty")),
            (b"\n", Err("is empty")),
            (b" \x15\n", Err("is empty")),
            (b"\xff\n", Err("is not valid text")),
        ] {
            let expected = secret.map(str::to_owned).map_err(str::to_owned);
            assert_eq!(read(keys), expected, "{}", keys.escape_ascii());
        }
        assert_eq!(read(&b"x".repeat(MAX_TYPED + 1)), Err("is too long".to_owned()));
    }

    #[test]
    fn a_terminal_hides_the_secret_and_has_its_modes_back_also_after_ctrl_c() {
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
        let master = openpt(flags).unwrap();
        unlockpt(&master).unwrap();
        let terminal = File::from(ioctl_tiocgptpeer(&master, flags).unwrap());
        let mut keyboard = File::from(master);
        let modes = || tcgetattr(&terminal).unwrap().local_modes;
        let before = modes();
        assert!(before.contains(LocalModes::ECHO | LocalModes::ICANON | LocalModes::ISIG));
        for (keys, secret) in [(&b"s3cret\n"[..], Some("s3cret")), (b"s3c\x03", None)] {
            let hidden = HiddenInput::start(&terminal).unwrap();
            assert!(!modes().intersects(LocalModes::ECHO | LocalModes::ICANON | LocalModes::ISIG));
            keyboard.write_all(keys).unwrap();
            let read = read_line(BufReader::new(&terminal), "--x");
            assert_eq!(read.as_ref().ok().map(Secret::expose), secret);
            drop(hidden);
            assert_eq!(modes(), before);
        }
    }
}
