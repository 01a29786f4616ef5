//! Any bytes as the body of a gRPC request, for every method of both versions: no panic; what is accepted is within its bounds,
//! and means the same when a client of ours writes it again; a refusal fits in the header fields of a response.
#![no_main]

use asp_a2a::bounds::{MAX_ID, MAX_PARTS};
use asp_a2a::grpc::service::{GrpcMethod, decode_request};
use asp_a2a::grpc::{decode_status, once_read, read_frame, status_fields, v03, v10, write_frame};
use asp_a2a::{A2aFailure, Generation, Operation, OperationKind, Request};
use libfuzzer_sys::fuzz_target;

/// Bytes of header fields that clients of gRPC accept.
const MAX_FIELDS: usize = 8 << 10;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(message) = read_frame(bytes) {
        assert_eq!(write_frame(message), bytes);
    }
    assert!(once_read(bytes) >= bytes.len());
    let _ = decode_status(3, "a message", bytes);
    let text = String::from_utf8_lossy(bytes);
    if let Some(method) = GrpcMethod::at(&text) {
        assert!(text.ends_with(|char: char| char.is_ascii_alphabetic()), "{method:?}");
    }
    // The frame is written here, because its length is hard to guess.
    let frame = write_frame(bytes);
    let message = read_frame(&frame).expect("a frame of ours");
    for generation in [Generation::V03, Generation::V10] {
        for kind in OperationKind::ALL {
            match decode_request(GrpcMethod { generation, kind }, message) {
                Ok(request) => check(&request, kind),
                Err(failure) => check_fields(&failure),
            }
        }
    }
});

fn check_fields(failure: &A2aFailure) {
    let fields = status_fields(failure);
    assert!(fields.iter().map(|(name, value)| name.len() + value.len()).sum::<usize>() <= MAX_FIELDS);
    assert!(fields.iter().all(|(_, value)| value.bytes().all(|byte| (b' '..=b'~').contains(&byte))));
}

fn check(request: &Request, kind: OperationKind) {
    assert_eq!(request.operation.kind(), kind);
    if let Operation::Send(send) | Operation::Stream(send) = &request.operation {
        assert!((1..=MAX_PARTS).contains(&send.message.parts.len()));
        assert!((1..=MAX_ID).contains(&send.message.message_id.len()));
    }
    if let Operation::CreatePush(config) = &request.operation {
        assert!(!config.url.chars().any(char::is_control) && !config.task_id.is_empty());
    }
    let again = match request.generation {
        Generation::V10 => again_v10(&request.operation),
        Generation::V03 => again_v03(&request.operation),
    };
    if let Some(again) = again {
        assert_eq!(again.expect("a request of ours").operation, request.operation);
    }
}

/// Reads a request again as a client of ours writes it; `None` if it does not write all of it.
fn again_v10(operation: &Operation) -> Option<Result<Request, A2aFailure>> {
    use v10::request::*;
    Some(match operation {
        // What nests deeper than is written is refused there.
        Operation::Send(send) => decode_send(encode_send(send).ok()?, false),
        Operation::Stream(send) => decode_send(encode_send(send).ok()?, true),
        Operation::GetTask { id, history_length } => decode_get_task(encode_get_task(id, *history_length)),
        Operation::ListTasks(query) => decode_list_tasks(encode_list_tasks(query)),
        Operation::CancelTask { id, metadata } => {
            decode_cancel_task(encode_cancel_task(id, metadata.as_ref()).ok()?)
        }
        Operation::Subscribe { id } => decode_subscribe(encode_subscribe(id)),
        Operation::CreatePush(config) => decode_create_push(v10::encode_push(config)),
        Operation::GetPush { task_id, id } => decode_get_push(encode_get_push(task_id, id.as_deref()?)),
        Operation::DeletePush { task_id, id } => decode_delete_push(encode_delete_push(task_id, id)),
        Operation::ListPush { .. } | Operation::ExtendedCard => return None,
    })
}

fn again_v03(operation: &Operation) -> Option<Result<Request, A2aFailure>> {
    use v03::request::*;
    Some(match operation {
        Operation::Send(send) => decode_send(encode_send(send).ok()?, false),
        Operation::Stream(send) => decode_send(encode_send(send).ok()?, true),
        Operation::GetTask { id, history_length } => decode_get_task(&encode_get_task(id, *history_length)),
        Operation::CancelTask { id, .. } => decode_cancel_task(&encode_cancel_task(id)),
        Operation::Subscribe { id } => decode_subscribe(&encode_subscribe(id)),
        Operation::CreatePush(config) => decode_create_push(encode_create_push(config)),
        Operation::GetPush { task_id, id } => {
            decode_get_push(&encode_get_push(task_id, id.as_deref().unwrap_or_default()))
        }
        Operation::DeletePush { task_id, id } => decode_delete_push(&encode_delete_push(task_id, id)),
        Operation::ListTasks(_) | Operation::ListPush { .. } | Operation::ExtendedCard => return None,
    })
}
