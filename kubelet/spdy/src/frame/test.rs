//! Frames against their bytes: known ones, any ones, hostile ones.

use proptest::prelude::*;

use super::*;

fn encode(frames: &[Frame]) -> Vec<u8> {
    let (mut encoder, mut out) = (Encoder::default(), Vec::new());
    frames.iter().for_each(|f| encoder.encode(f, &mut out));
    out
}

/// Decodes bytes that arrive in pieces; data frames that came in parts are
/// joined again.
fn decode(bytes: &[u8], piece: usize) -> Result<Vec<Frame>, SpdyError> {
    let mut decoder = Decoder::default();
    let mut frames: Vec<Frame> = Vec::new();
    let mut open = false;
    for part in bytes.chunks(piece.max(1)) {
        decoder.push(part);
        while let Some(frame) = decoder.next_frame()? {
            let continues = decoder.unfinished.is_some();
            match (frames.last_mut(), frame) {
                (
                    Some(Frame::Data { fin, bytes, .. }),
                    Frame::Data {
                        fin: f, bytes: b, ..
                    },
                ) if open => {
                    *fin = f;
                    *bytes = [bytes.as_ref(), b.as_ref()].concat().into();
                }
                (_, frame) => frames.push(frame),
            }
            open = continues;
        }
    }
    Ok(frames)
}

fn headers(pairs: &[(&str, &str)]) -> Headers {
    let own = |(n, v): &(&str, &str)| ((*n).to_owned(), (*v).to_owned());
    Headers(pairs.iter().map(own).collect())
}

#[test]
fn frames_have_the_bytes_the_protocol_says() {
    let cases: [(Frame, &[u8]); 6] = [
        (
            Frame::Reset {
                stream: 3,
                status: 5,
            },
            &[0x80, 3, 0, 3, 0, 0, 0, 8, 0, 0, 0, 3, 0, 0, 0, 5],
        ),
        (
            Frame::Ping { id: 1 },
            &[0x80, 3, 0, 6, 0, 0, 0, 4, 0, 0, 0, 1],
        ),
        (
            Frame::GoAway { last: 7, status: 0 },
            &[0x80, 3, 0, 7, 0, 0, 0, 8, 0, 0, 0, 7, 0, 0, 0, 0],
        ),
        (
            Frame::WindowUpdate {
                stream: 1,
                delta: 258,
            },
            &[0x80, 3, 0, 9, 0, 0, 0, 8, 0, 0, 0, 1, 0, 0, 1, 2],
        ),
        (
            Frame::Data {
                stream: 5,
                fin: true,
                bytes: Bytes::from_static(b"ab"),
            },
            &[0, 0, 0, 5, 1, 0, 0, 2, b'a', b'b'],
        ),
        (
            Frame::SynReply {
                stream: 1,
                fin: false,
                headers: Headers::default(),
            },
            &[
                0x80, 3, 0, 2, 0, 0, 0, 24, 0, 0, 0, 1, // head and stream
                0x78, 0xbb, 0xe3, 0xc6, 0xa7, 0xc2, // zlib, its dictionary
                0, 4, 0, 0xfb, 0xff, 0, 0, 0, 0, // no headers
                0, 0, 0, 0xff, 0xff, // flush
            ],
        ),
    ];
    for (frame, bytes) in cases {
        assert_eq!(encode(std::slice::from_ref(&frame)), bytes, "{frame:?}");
        assert_eq!(decode(bytes, 1).unwrap(), [frame]);
    }
}

#[test]
fn a_stream_is_opened_with_its_headers() {
    let frame = Frame::SynStream {
        stream: 1,
        associated: 0,
        priority: 3,
        fin: true,
        unidirectional: false,
        headers: headers(&[("streamtype", "error"), ("port", "80"), ("requestid", "0")]),
    };
    let bytes = encode(std::slice::from_ref(&frame));
    assert_eq!(
        bytes[..8],
        [
            0x80,
            3,
            0,
            1,
            1,
            0,
            0,
            u8::try_from(bytes.len() - 8).unwrap()
        ]
    );
    assert_eq!(bytes[16..18], [3 << 5, 0]);
    let Frame::SynStream { headers, .. } = &decode(&bytes, 7).unwrap()[0] else {
        panic!("not a stream");
    };
    assert_eq!(headers.get("port"), Some("80"));
    assert_eq!(headers.get("nothing"), None);
    assert_eq!(decode(&bytes, 7).unwrap(), [frame]);
}

#[test]
fn broken_frames_are_refused() {
    let refused = |bytes: &[u8]| decode(bytes, 3).unwrap_err();
    assert_eq!(
        refused(&[0x80, 2, 0, 6, 0, 0, 0, 4, 0, 0, 0, 1]),
        SpdyError::Version(2)
    );
    assert_eq!(
        refused(&[0x80, 3, 0, 6, 0, 0, 0, 3, 0, 0, 0]),
        SpdyError::Malformed(6)
    );
    assert_eq!(
        refused(&[0x80, 3, 0, 1, 0, 1, 0, 1]),
        SpdyError::TooLong(65_537)
    );
    assert_eq!(
        refused(&[0x80, 3, 0, 4, 0, 0, 0, 4, 0, 0, 0, 9]),
        SpdyError::Malformed(4)
    );
    let mut lying = encode(&[Frame::SynReply {
        stream: 1,
        fin: false,
        headers: Headers::default(),
    }]);
    // The count of headers, where there are none.
    lying[26] = 1;
    assert_eq!(refused(&lying), SpdyError::Headers);
}

#[test]
fn unknown_control_frames_are_passed_over() {
    let mut bytes = vec![0x80, 3, 0, 99, 0, 0, 0, 2, 1, 2];
    bytes.extend(encode(&[Frame::Ping { id: 2 }]));
    assert_eq!(decode(&bytes, 4).unwrap(), [Frame::Ping { id: 2 }]);
}

fn any_headers() -> impl Strategy<Value = Headers> {
    prop::collection::vec(("[a-z-]{0,20}", ".{0,40}"), 0..6).prop_map(Headers)
}

fn any_frame() -> impl Strategy<Value = Frame> {
    let id = 0..=STREAM_BITS;
    let data = prop::collection::vec(any::<u8>(), 0..300);
    let setting = (any::<u8>(), 0..=0x00ff_ffff_u32, any::<u32>());
    let setting = setting.prop_map(|(flags, id, value)| Setting { flags, id, value });
    prop_oneof![
        (
            id.clone(),
            id.clone(),
            0..8_u8,
            any::<[bool; 2]>(),
            any_headers()
        )
            .prop_map(
                |(stream, associated, priority, [fin, unidirectional], headers)| Frame::SynStream {
                    stream,
                    associated,
                    priority,
                    fin,
                    unidirectional,
                    headers,
                }
            ),
        (id.clone(), any::<bool>(), any_headers()).prop_map(|(stream, fin, headers)| {
            Frame::SynReply {
                stream,
                fin,
                headers,
            }
        }),
        (id.clone(), any::<bool>(), any_headers()).prop_map(|(stream, fin, headers)| {
            Frame::Headers {
                stream,
                fin,
                headers,
            }
        }),
        (id.clone(), any::<u32>()).prop_map(|(stream, status)| Frame::Reset { stream, status }),
        (any::<bool>(), prop::collection::vec(setting, 0..4))
            .prop_map(|(clear, settings)| Frame::Settings { clear, settings }),
        any::<u32>().prop_map(|id| Frame::Ping { id }),
        (id.clone(), any::<u32>()).prop_map(|(last, status)| Frame::GoAway { last, status }),
        (id.clone(), id.clone()).prop_map(|(stream, delta)| Frame::WindowUpdate { stream, delta }),
        (id, any::<bool>(), data).prop_map(|(stream, fin, bytes)| Frame::Data {
            stream,
            fin,
            bytes: bytes.into(),
        }),
    ]
}

proptest! {
    /// However the bytes arrive, the frames that come out are those that went in.
    #[test]
    fn frames_survive_the_wire(
        frames in prop::collection::vec(any_frame(), 0..12),
        piece in 1..200_usize,
    ) {
        prop_assert_eq!(decode(&encode(&frames), piece).unwrap(), frames);
    }

    /// Whatever arrives gives frames or a refusal, never a panic.
    #[test]
    fn any_bytes_are_survived(bytes in prop::collection::vec(any::<u8>(), 0..400), piece in 1..50_usize) {
        let _whatever = decode(&bytes, piece);
    }

    /// The same with frames of which one byte is wrong.
    #[test]
    fn a_wrong_byte_is_survived(
        frames in prop::collection::vec(any_frame(), 1..6),
        at in any::<prop::sample::Index>(),
        byte in any::<u8>(),
    ) {
        let mut bytes = encode(&frames);
        let at = at.index(bytes.len());
        bytes[at] = byte;
        let _whatever = decode(&bytes, 64);
    }
}
