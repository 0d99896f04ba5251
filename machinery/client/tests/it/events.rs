//! The event recorder.

use client::{EventRecorder, EventType, KubeObject};
use k8s_openapi::api::core::v1::Pod;

use crate::eventually;
use client::testing::Fake;

const EVENTS: &str = "/api/v1/events";

fn pod() -> Pod {
    let mut pod = Pod::default();
    pod.metadata.name = Some("web-1".into());
    pod.metadata.namespace = Some("a".into());
    pod.metadata.uid = Some("u".into());
    pod
}

#[tokio::test]
async fn identical_events_become_one_with_a_count() {
    let fake = Fake::default();
    let recorder = EventRecorder::new(fake.client(), "kubelet", Some("node-1"));
    let pod = pod();
    for _ in 0..3 {
        recorder.record(&pod, EventType::Warning, "BackOff", "restarting");
    }
    recorder.record(&pod, EventType::Normal, "Pulled", "image present");
    eventually("all written", || recorder.unwritten() == 0).await;

    let events = fake.objects(EVENTS);
    assert_eq!(events.len(), 2);
    let back_off = events.iter().find(|e| e["reason"] == "BackOff").unwrap();
    assert_eq!(back_off["count"], 3);
    assert_eq!(back_off["type"], "Warning");
    assert_eq!(back_off["source"]["component"], "kubelet");
    assert_eq!(back_off["source"]["host"], "node-1");
    assert_eq!(back_off["involvedObject"]["kind"], "Pod");
    assert_eq!(back_off["involvedObject"]["uid"], pod.uid());
    assert_eq!(back_off["metadata"]["namespace"], "a");
}

#[tokio::test]
async fn recording_never_blocks_and_drops_the_oldest() {
    let fake = Fake::default();
    let recorder = EventRecorder::new(fake.client(), "test", None);
    let pod = pod();
    // The writer shares this thread and does not run before the first await.
    for i in 0..1010 {
        recorder.record(&pod, EventType::Normal, "R", format!("m{i}"));
    }
    assert_eq!(recorder.dropped(), 10);
    eventually("all written", || recorder.unwritten() == 0).await;
    let events = fake.objects(EVENTS);
    assert!(
        events.iter().any(|e| e["message"] == "m10"),
        "the oldest that was kept"
    );
    assert!(
        events.len() <= 25,
        "one object cannot flood: {}",
        events.len()
    );
}
