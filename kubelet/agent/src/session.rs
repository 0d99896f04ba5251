//! A running command, or a container's own process, with somebody at the other
//! end: what goes in, what comes out, and how it ends.

use bytes::Bytes;
use kubelet_core::cri_log::Stream;
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::terminal::Size;

/// How many pieces wait in each direction; beyond this the side that sends waits.
const PIECES_MAX: usize = 8;
/// Most bytes of one piece of output.
pub(crate) const PIECE_BYTES: usize = 32 * 1024;

/// What is wanted of a command's streams.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wanted {
    /// Whether input is sent; without it the command reads nothing.
    pub stdin: bool,
    /// Whether its output is heard.
    pub stdout: bool,
    /// Whether its errors are heard; never apart on a terminal.
    pub stderr: bool,
    /// Whether it gets a terminal.
    pub tty: bool,
}

/// What goes in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input {
    /// Bytes for standard input.
    Bytes(Bytes),
    /// The end of standard input.
    End,
    /// Another size of the terminal.
    Resize(Size),
}

/// How a session ended: the command's exit code, or why there is none.
pub type Ended = Result<i32, String>;

/// The end that a user holds. Dropping it ends a command; a container goes on.
#[derive(Debug)]
pub struct Session {
    /// Takes input. Waits while the command does not read.
    pub input: mpsc::Sender<Input>,
    /// Gives output until there is no more.
    pub output: mpsc::Receiver<(Stream, Bytes)>,
    /// Tells how it ended, once.
    pub end: oneshot::Receiver<Ended>,
    _guard: DropGuard,
}

/// The end that a runtime holds.
#[derive(Debug)]
pub(crate) struct Backstage {
    pub(crate) input: mpsc::Receiver<Input>,
    pub(crate) output: mpsc::Sender<(Stream, Bytes)>,
    pub(crate) end: oneshot::Sender<Ended>,
    /// Cancelled when the user has left.
    pub(crate) left: CancellationToken,
}

/// Makes the two ends of a session.
pub(crate) fn pair() -> (Session, Backstage) {
    let (input, input_receiver) = mpsc::channel(PIECES_MAX);
    let (output_sender, output) = mpsc::channel(PIECES_MAX);
    let (end_sender, end) = oneshot::channel();
    let left = CancellationToken::new();
    let session = Session {
        input,
        output,
        end,
        _guard: left.clone().drop_guard(),
    };
    let backstage = Backstage {
        input: input_receiver,
        output: output_sender,
        end: end_sender,
        left,
    };
    (session, backstage)
}
