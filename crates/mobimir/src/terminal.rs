//! What commands tell people.

use std::io::Write;

use anyhow::{Context, Result};

/// Prints to standard output. A reader who has seen enough (`| head`) is no failure.
pub(crate) fn print(text: &str) -> Result<()> {
    match std::io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(error).context("cannot write the answer")
        }
        _ => Ok(()),
    }
}
