//! Any bytes as an answer or an event of an agent, over JSON-RPC and REST of both versions: no panic; what is accepted means the
//! same when a server of ours writes it again; an error is told in bounded text.
#![no_main]

use asp_a2a::jsonrpc::AnswerFault;
use asp_a2a::{Generation, OperationKind, jsonrpc, rest};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    // Forms differ in depth, and a text has at most 127 levels.
    if bytes.iter().filter(|byte| matches!(byte, b'[' | b'{')).count() > 100 {
        return;
    }
    for generation in [Generation::V03, Generation::V10] {
        for kind in OperationKind::ALL {
            match jsonrpc::decode_answer(kind, generation, bytes) {
                Ok(answer) => {
                    let text = jsonrpc::encode_answer(Some("1"), generation, &answer);
                    let again =
                        jsonrpc::decode_answer(kind, generation, text.as_bytes()).expect("an answer of ours");
                    assert_eq!(jsonrpc::encode_answer(Some("1"), generation, &again), text);
                }
                Err(AnswerFault::Refused(failure)) => assert!(failure.message.len() <= 4096),
                Err(AnswerFault::Invalid(_)) => {}
            }
            let _ = rest::decode_answer(kind, generation, 200, bytes);
            if let Err(AnswerFault::Refused(failure)) = rest::decode_answer(kind, generation, 500, bytes) {
                assert!(!failure.message.chars().any(char::is_control));
            }
        }
        if let Ok(event) = rest::decode_event(generation, bytes) {
            let text = rest::encode_event(generation, &event);
            assert!(!text.contains('\n'), "an event is on one line");
            let again = rest::decode_event(generation, text.as_bytes()).expect("an event of ours");
            assert_eq!(rest::encode_event(generation, &again), text);
            let other = match generation {
                Generation::V03 => Generation::V10,
                Generation::V10 => Generation::V03,
            };
            assert!(rest::decode_event(other, rest::encode_event(other, &event).as_bytes()).is_ok());
        }
    }
});
