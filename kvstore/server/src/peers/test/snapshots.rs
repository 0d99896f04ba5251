//! Snapshots between members: whole, slow, and cut off on either side.

use std::{
    io,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use tokio::sync::Semaphore;
use tonic::{Code, Status};

use super::{
    cluster,
    harness::{Node, eventually},
};
use crate::peers::SnapshotBody;

const CHUNK: usize = 256 << 10;

fn chunk(number: usize) -> Bytes {
    Bytes::from(vec![number as u8; CHUNK])
}

/// How a member takes snapshots in.
fn on_snapshot<F, Fut>(node: &Node, f: F)
where
    F: Fn(Bytes, SnapshotBody) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<(), Status>> + Send + 'static,
{
    let f = move |head, body| -> futures::future::BoxFuture<'static, _> { Box::pin(f(head, body)) };
    *node.sink.on_snapshot.lock().unwrap() = Some(Arc::new(f));
}

#[tokio::test]
async fn a_snapshot_arrives_whole() {
    const COUNT: usize = 40;
    let nodes = cluster(&[1, 2]).await;
    let seen = Arc::new(Mutex::new((Bytes::new(), Vec::new())));
    let writer = Arc::clone(&seen);
    on_snapshot(&nodes[1], move |head, mut body| {
        let writer = Arc::clone(&writer);
        async move {
            writer.lock().unwrap().0 = head;
            let reading = tokio::task::spawn_blocking(move || {
                while let Some(bytes) = body.next_blocking().unwrap() {
                    writer.lock().unwrap().1.push(bytes);
                }
                assert_eq!(body.next_blocking(), Ok(None), "the end stays the end");
            });
            reading.await.unwrap();
            Ok(())
        }
    });
    let head = Bytes::from_static(b"index 7");
    let body = (0..COUNT).map(|number| Ok(chunk(number)));
    let sent = nodes[0].peers.send_snapshot(2, head.clone(), body);
    sent.await.unwrap();
    let seen = seen.lock().unwrap();
    assert_eq!(seen.0, head);
    assert!(
        seen.1
            .iter()
            .eq((0..COUNT).map(chunk).collect::<Vec<_>>().iter())
    );
}

#[tokio::test]
async fn a_snapshot_comes_no_faster_than_it_is_taken() {
    const COUNT: usize = 400;
    let nodes = cluster(&[1, 2]).await;
    let allowed = Arc::new(Semaphore::new(0));
    let permits = Arc::clone(&allowed);
    on_snapshot(&nodes[1], move |_, mut body| {
        let permits = Arc::clone(&permits);
        async move {
            loop {
                permits.acquire().await.unwrap().forget();
                if body.next().await.unwrap().is_none() {
                    return Ok(());
                }
            }
        }
    });
    let read = Arc::new(AtomicUsize::new(0));
    let reader = Arc::clone(&read);
    let body = (0..COUNT).map(move |number| {
        reader.fetch_add(1, Ordering::SeqCst);
        Ok(chunk(number))
    });
    let peers = nodes[0].peers.clone();
    let sending = tokio::spawn(async move { peers.send_snapshot(2, Bytes::new(), body).await });
    // It is read until everything in between is full, and no further.
    let mut before = usize::MAX;
    while read.load(Ordering::SeqCst) != before || before == 0 {
        before = read.load(Ordering::SeqCst);
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    assert!(before * CHUNK < 24 << 20, "{before} chunks were read ahead");
    // Links go on meanwhile.
    nodes[0].forward(2, 1, 1).unwrap();
    let came = |heard: &super::harness::Heard| !heard.notes.is_empty();
    nodes[1].sink.until("a note beside it", came).await;
    allowed.add_permits(COUNT + 1);
    sending.await.unwrap().unwrap();
    assert_eq!(read.load(Ordering::SeqCst), COUNT);
}

#[tokio::test]
async fn a_snapshot_that_cannot_be_read_is_never_taken_for_whole() {
    let nodes = cluster(&[1, 2]).await;
    let ended = Arc::new(Mutex::new(None));
    let writer = Arc::clone(&ended);
    on_snapshot(&nodes[1], move |_, mut body| {
        let writer = Arc::clone(&writer);
        async move {
            // On a thread of its own: the call may be gone before the end is seen.
            let reading = tokio::task::spawn_blocking(move || {
                let cut = loop {
                    match body.next_blocking() {
                        Ok(Some(_)) => {}
                        Ok(None) => break None,
                        Err(cut) => break Some(cut),
                    }
                };
                *writer.lock().unwrap() = Some(cut.is_some());
            });
            reading.await.unwrap();
            Err(Status::data_loss("cut off"))
        }
    });
    let body = (0..10).map(|number| match number {
        9 => Err(io::Error::other("a bad block")),
        number => Ok(chunk(number)),
    });
    let sent = nodes[0].peers.send_snapshot(2, Bytes::new(), body).await;
    let error = sent.unwrap_err();
    assert_eq!(error.code(), Code::DataLoss);
    assert!(error.message().contains("a bad block"), "{error}");
    eventually("the receiver knows", || {
        *ended.lock().unwrap() == Some(true)
    })
    .await;
}

#[tokio::test]
async fn a_receiver_that_gives_up_ends_the_reading() {
    let nodes = cluster(&[1, 2]).await;
    on_snapshot(&nodes[1], |_, mut body| async move {
        body.next().await.unwrap();
        Err(Status::resource_exhausted("no room on the disk"))
    });
    let read = Arc::new(AtomicUsize::new(0));
    let reader = Arc::clone(&read);
    let endless = (0..).map(move |number: usize| {
        reader.fetch_add(1, Ordering::SeqCst);
        Ok(chunk(number))
    });
    let sent = nodes[0].peers.send_snapshot(2, Bytes::new(), endless).await;
    let error = sent.unwrap_err();
    assert_eq!(error.code(), Code::ResourceExhausted);
    assert_eq!(error.message(), "no room on the disk");
    // The reader has ended, or this would not have returned.
    let stopped = read.load(Ordering::SeqCst);
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert_eq!(read.load(Ordering::SeqCst), stopped);
}

#[tokio::test]
async fn a_sender_that_gives_up_is_noticed_and_a_newer_snapshot_comes_in() {
    let nodes = cluster(&[1, 2]).await;
    let begun = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&begun);
    on_snapshot(&nodes[1], move |_, mut body| {
        counter.fetch_add(1, Ordering::SeqCst);
        async move {
            while body
                .next()
                .await
                .map_err(|cut| Status::aborted(cut.to_string()))?
                .is_some()
            {}
            Ok(())
        }
    });
    // One that never ends: its next chunk does not come.
    let (hold, held) = std::sync::mpsc::channel::<()>();
    let body = (0..).map(move |number: usize| match number {
        0 => Ok(chunk(0)),
        _ => {
            let _ended = held.recv();
            Err(io::ErrorKind::TimedOut.into())
        }
    });
    let peers = nodes[0].peers.clone();
    let first = tokio::spawn(async move { peers.send_snapshot(2, Bytes::new(), body).await });
    eventually("the first has begun", || begun.load(Ordering::SeqCst) == 1).await;
    let second = nodes[0]
        .peers
        .send_snapshot(2, Bytes::new(), std::iter::once(Ok(chunk(1))));
    second.await.unwrap();
    drop(hold);
    let error = first.await.unwrap().unwrap_err();
    assert!(error.message().contains("timed out"), "{error}");
}
