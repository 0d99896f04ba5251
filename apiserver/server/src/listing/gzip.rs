//! Compression, a frame at a time.

use std::io::Write as _;

use bytes::Bytes;
use flate2::write::GzEncoder;
use meta::Status;
use tokio::task::yield_now;

use super::Frames;
use crate::pipeline::GZIP_LEVEL;

/// Frames that are compressed as they come.
pub(super) struct Gzip {
    frames: Frames,
    /// `None` once it was finished.
    encoder: Option<GzEncoder<Vec<u8>>>,
}

impl Gzip {
    pub(super) fn new(frames: Frames) -> Self {
        Self {
            frames,
            encoder: Some(GzEncoder::new(Vec::new(), GZIP_LEVEL)),
        }
    }

    /// Makes the next frame: what has come out of the encoder, which keeps some back.
    pub(super) async fn next(&mut self) -> Result<Option<Bytes>, Status> {
        loop {
            let Some(encoder) = &mut self.encoder else {
                return Ok(None);
            };
            let Some(frame) = self.frames.next().await? else {
                let finished = self.encoder.take().map(GzEncoder::finish);
                let last = finished.transpose().map_err(Status::internal)?;
                return Ok(last.map(Bytes::from));
            };
            encoder.write_all(&frame).map_err(Status::internal)?;
            let out = std::mem::take(encoder.get_mut());
            if !out.is_empty() {
                return Ok(Some(out.into()));
            }
            yield_now().await;
        }
    }
}
