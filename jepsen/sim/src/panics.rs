//! What a panic said and where, kept instead of printed: a member that panics is a
//! finding, not the end of the simulation.

use std::{
    any::Any,
    cell::{Cell, RefCell},
    panic,
    sync::Once,
};

thread_local! {
    static QUIET: Cell<bool> = const { Cell::new(false) };
    static LAST: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Keeps panics of this thread from being printed, from now on.
pub(crate) fn keep() {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            if QUIET.get() {
                LAST.set(Some(info.to_string().replace('\n', " ")));
            } else {
                before(info);
            }
        }));
    });
    QUIET.set(true);
}

/// Lets panics of this thread be printed again.
pub(crate) fn print() {
    QUIET.set(false);
}

/// Says what the last panic said.
pub(crate) fn said(payload: &(dyn Any + Send)) -> String {
    let message = payload.downcast_ref::<String>().cloned().or_else(|| {
        payload
            .downcast_ref::<&str>()
            .map(|text| (*text).to_owned())
    });
    LAST.take()
        .or(message)
        .unwrap_or_else(|| "something".to_owned())
}
