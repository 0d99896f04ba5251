//! Long ranges in chunks (etcd 3.7).

use proto::etcdserverpb::{self as pb, range_request::SortTarget};
use tonic::Status;

use crate::store::{Kv, Store, delete, put, range, refused};

const KEYS: usize = 2_000;
const VALUE_BYTES: usize = 2_000;

/// Small enough that the keys take many chunks.
const REQUEST_BYTES_MAX: usize = 64 << 10;

async fn filled() -> (Store, Kv) {
    let store = Store::start_with(|config| config.max_request_bytes = REQUEST_BYTES_MAX).await;
    let handle = store.running().handle.clone();
    for key in 0..KEYS {
        let put = mvcc::PutRequest {
            key: format!("k{key:05}").into(),
            value: vec![b'v'; VALUE_BYTES].into(),
            ..Default::default()
        };
        handle.put(put).await.unwrap();
    }
    let kv = store.kv().await;
    (store, kv)
}

/// Reads to the end; returns the chunks.
async fn chunks(kv: &mut Kv, request: pb::RangeRequest) -> Result<Vec<pb::RangeResponse>, Status> {
    let mut stream = kv.0.range_stream(request).await?.into_inner();
    let mut chunks = Vec::new();
    while let Some(chunk) = stream.message().await? {
        chunks.push(chunk.range_response.unwrap());
    }
    Ok(chunks)
}

/// Puts the chunks together, and checks that only the last says what it should.
#[track_caller]
fn whole(chunks: Vec<pb::RangeResponse>) -> pb::RangeResponse {
    let (last, others) = chunks.split_last().unwrap();
    let mut whole = last.clone();
    whole.kvs.clear();
    for chunk in others {
        assert!(chunk.header.is_none() && !chunk.more && chunk.count == 0);
        assert!(!chunk.kvs.is_empty());
    }
    whole
        .kvs
        .extend(chunks.into_iter().flat_map(|chunk| chunk.kvs));
    whole
}

#[tokio::test]
async fn a_list_comes_in_chunks_of_one_revision() {
    let (_store, mut kv) = filled().await;
    let wanted = kv.range(range("k", "l")).await.unwrap();
    assert_eq!(wanted.kvs.len(), KEYS);
    let mut stream =
        kv.0.range_stream(range("k", "l"))
            .await
            .unwrap()
            .into_inner();
    let first = stream.message().await.unwrap().unwrap();
    let mut got = vec![first.range_response.unwrap()];
    assert_eq!(got[0].kvs.len(), 10);
    // What happens from now on is not part of it.
    let mut other = Kv::new(_store.channel().await);
    other.put("k01999x", "later").await;
    other.0.delete_range(delete("k01998", "")).await.unwrap();
    while let Some(chunk) = stream.message().await.unwrap() {
        let chunk = chunk.range_response.unwrap();
        let bytes: usize = chunk.kvs.iter().map(|kv| kv.value.len()).sum();
        assert!(bytes <= 2 * REQUEST_BYTES_MAX + VALUE_BYTES);
        got.push(chunk);
    }
    assert!(got.len() > 20, "{} chunks", got.len());
    assert_eq!(whole(got), wanted, "header, count and pairs");
}

#[tokio::test]
async fn limits_counts_and_single_keys() {
    let (_store, mut kv) = filled().await;
    for request in [
        range("k00007", ""),
        range("nothing", ""),
        range("x", "y"),
        pb::RangeRequest {
            limit: 7,
            ..range("k", "l")
        },
        pb::RangeRequest {
            limit: 100,
            keys_only: true,
            ..range("k", "\0")
        },
        pb::RangeRequest {
            limit: KEYS as i64,
            ..range("k", "l")
        },
        pb::RangeRequest {
            count_only: true,
            ..range("k", "l")
        },
        pb::RangeRequest {
            revision: 500,
            limit: 300,
            ..range("\0", "\0")
        },
        pb::RangeRequest {
            revision: 500,
            count_only: true,
            serializable: true,
            ..range("\0", "\0")
        },
    ] {
        let wanted = kv.range(request.clone()).await.unwrap();
        let got = whole(chunks(&mut kv, request.clone()).await.unwrap());
        assert_eq!(got, wanted, "{request:?}");
    }
}

#[tokio::test]
async fn what_cannot_be_streamed_is_refused() {
    let store = Store::start().await;
    let mut kv = store.kv().await;
    kv.put("a", "1").await;
    kv.put("a", "2").await;
    let empty = "etcdserver: key is not provided";
    refused(chunks(&mut kv, range("", "")).await, 3, empty);
    let sorted = |sort_order, sort_target: SortTarget| pb::RangeRequest {
        sort_order,
        sort_target: sort_target.into(),
        ..range("a", "b")
    };
    let order = "RangeStream does not support custom sort orders";
    for request in [sorted(2, SortTarget::Key), sorted(1, SortTarget::Mod)] {
        refused(chunks(&mut kv, request).await, 12, order);
    }
    for request in [sorted(1, SortTarget::Key), sorted(0, SortTarget::Value)] {
        chunks(&mut kv, request).await.unwrap();
    }
    let unknown = "etcdserver: invalid sort option";
    refused(
        chunks(&mut kv, sorted(9, SortTarget::Key)).await,
        3,
        unknown,
    );
    let filtered = pb::RangeRequest {
        min_create_revision: 1,
        ..range("a", "b")
    };
    let filters = "RangeStream does not support revision filters";
    refused(chunks(&mut kv, filtered).await, 12, filters);
    let at = |revision| pb::RangeRequest {
        revision,
        ..range("a", "b")
    };
    let future = "etcdserver: mvcc: required revision is a future revision";
    refused(chunks(&mut kv, at(4)).await, 11, future);
    kv.compact(3).await.unwrap();
    let compacted = "etcdserver: mvcc: required revision has been compacted";
    refused(chunks(&mut kv, at(2)).await, 11, compacted);
}

#[tokio::test]
async fn a_compaction_of_its_revision_ends_a_list_that_is_read_slowly() {
    let (store, mut kv) = filled().await;
    let mut stream =
        kv.0.range_stream(range("k", "l"))
            .await
            .unwrap()
            .into_inner();
    stream.message().await.unwrap().unwrap();
    // The windows of HTTP/2 hold the rest of it back.
    let mut other = Kv::new(store.channel().await);
    let revision = other.0.put(put("k", "x")).await.unwrap();
    let revision = revision.into_inner().header.unwrap().revision;
    other.compact(revision).await.unwrap();
    let error = loop {
        match stream.message().await {
            Ok(chunk) => assert!(chunk.is_some(), "a whole list of a compacted revision"),
            Err(error) => break error,
        }
    };
    let compacted = "etcdserver: mvcc: required revision has been compacted";
    assert_eq!((error.code() as i32, error.message()), (11, compacted));
}
