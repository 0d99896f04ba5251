//! How the generated services encode: as tonic's own codec, with smaller buffers.
//!
//! tonic begins every call with eight kilobytes to encode into and as many to decode
//! from. Nearly all messages here are some dozens of bytes, and blocks of that size
//! come from no allocator's fast path: what outlives a call is cut out of them, and
//! the memory of a store that is only written to grows with its calls. Whatever is
//! larger makes its buffer grow.

use std::marker::PhantomData;

use prost::Message;
use tonic::codec::{BufferSettings, Codec};
use tonic_prost::{ProstCodec, ProstDecoder, ProstEncoder};

/// Bytes a buffer begins with: the largest that glibc keeps at hand for each thread.
const BUFFER_BYTES: usize = 1_024;

/// Encoded bytes after which a stream of messages is handed on (tonic's own choice).
pub const YIELD_BYTES: usize = 32 << 10;

/// Encodes `T`, decodes `U`.
#[derive(Debug, Clone)]
pub struct SmallCodec<T, U>(PhantomData<(T, U)>);

impl<T, U> Default for SmallCodec<T, U> {
    fn default() -> Self {
        Self(PhantomData)
    }
}

/// Returns the buffers of every codec here.
pub fn buffers() -> BufferSettings {
    BufferSettings::new(BUFFER_BYTES, YIELD_BYTES)
}

impl<T, U> Codec for SmallCodec<T, U>
where
    T: Message + Send + 'static,
    U: Message + Default + Send + 'static,
{
    type Encode = T;
    type Decode = U;
    type Encoder = ProstEncoder<T>;
    type Decoder = ProstDecoder<U>;

    fn encoder(&mut self) -> Self::Encoder {
        ProstCodec::<T, U>::raw_encoder(buffers())
    }

    fn decoder(&mut self) -> Self::Decoder {
        ProstCodec::<T, U>::raw_decoder(buffers())
    }
}
