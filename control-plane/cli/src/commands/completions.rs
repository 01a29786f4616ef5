//! `asp completions`: the completion script of a shell, made from the command line.

use std::io::Write;

use asp_command::failure::Failure;
use clap_complete::aot::{Shell, generate};

use crate::args::{CompletionsArgs, help};

/// Prints the script; a shell reads it as it is.
pub fn run(args: &CompletionsArgs) -> Result<(), Failure> {
    // Err: the reader is gone.
    let _ = std::io::stdout().write_all(&script(&args.shell)?);
    Ok(())
}

fn script(shell: &str) -> Result<Vec<u8>, Failure> {
    let shell: Shell = shell.parse().map_err(|fault: String| Failure::bad("SHELL", fault))?;
    let mut script = Vec::new();
    generate(shell, &mut help::command(), "asp", &mut script);
    Ok(script)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_script_knows_commands_options_and_values() {
        for shell in ["bash", "zsh", "fish"] {
            let script = String::from_utf8(script(shell).unwrap()).unwrap();
            for word in ["history", "restore-access", "revocation", "completions"] {
                assert!(script.contains(word), "{shell}: {word}");
            }
        }
        assert!(script("tcsh").is_err());
    }
}
