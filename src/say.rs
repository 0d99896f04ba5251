//! Words for the person at the terminal. Logs go through `tracing`; these are
//! the few lines that are the program's answer.

use std::io::Write;

/// Writes a line to standard output. Nobody is left to tell when that fails.
pub(crate) fn line(text: &str) {
    let mut out = std::io::stdout().lock();
    drop(writeln!(out, "{text}").and_then(|()| out.flush()));
}

/// Writes an error with its causes as one line to standard error.
pub(crate) fn error(error: &anyhow::Error) {
    let mut text = String::new();
    for cause in error.chain() {
        let cause = cause.to_string();
        // Many errors already say what caused them.
        if !text.contains(&cause) {
            if !text.is_empty() {
                text.push_str(": ");
            }
            text.push_str(&cause);
        }
    }
    drop(writeln!(std::io::stderr(), "error: {text}"));
}
