//! Messages of objects that are listed again and again, kept with the objects.

use std::sync::atomic::{AtomicUsize, Ordering};

use meta::Object;
use meta::object::Encoding;

/// How many bytes are kept in all. Beyond that nothing is added: room comes as objects
/// change or go, and what was kept goes with them.
const KEPT_BYTES_MAX: usize = 16 << 20;

static KEPT_BYTES: AtomicUsize = AtomicUsize::new(0);

/// A message, counted as long as it is kept.
struct Kept(Box<[u8]>);

impl Drop for Kept {
    fn drop(&mut self) {
        let Self(bytes) = self;
        KEPT_BYTES.fetch_sub(bytes.len(), Ordering::Relaxed);
    }
}

/// Returns the message of an object, if it is kept.
pub(super) fn message(object: &Object) -> Option<&[u8]> {
    let Kept(bytes) = object.note().get()?.downcast_ref()?;
    Some(bytes)
}

/// Keeps the message of an object, if it is made for the second time at least and there
/// is room.
pub(super) fn keep(object: &Object, message: &[u8]) {
    if object.size_in(Encoding::Protobuf).is_none() || object.note().get().is_some() {
        return;
    }
    let before = KEPT_BYTES.fetch_add(message.len(), Ordering::Relaxed);
    if before + message.len() > KEPT_BYTES_MAX {
        KEPT_BYTES.fetch_sub(message.len(), Ordering::Relaxed);
        return;
    }
    // Another may have been quicker; then this one is dropped, and counted no more.
    drop(object.note().set(Box::new(Kept(message.into()))));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_made_twice_is_kept() {
        let body = bytes::Bytes::from_static(br#"{"metadata":{}}"#);
        let object = Object::decode(body, meta::ResourceVersion(1), Vec::new()).unwrap();
        keep(&object, b"abc");
        assert_eq!(message(&object), None);
        object.keep_size(Encoding::Protobuf, 3);
        keep(&object, &vec![0; KEPT_BYTES_MAX + 1]);
        assert_eq!(message(&object), None);
        keep(&object, b"abc");
        assert_eq!(message(&object), Some(&b"abc"[..]));
        keep(&object, b"other");
        assert_eq!(message(&object), Some(&b"abc"[..]));
        assert_eq!(message(&object.clone()), None);
    }
}
