//! Frames of messages ("gRPC over HTTP2", `Length-Prefixed-Message`): a flag, the length and the message.

use crate::error::{A2aError, A2aFailure};

/// Length of a frame's flag and length, in bytes.
const PREFIX: usize = 5;

/// Returns the only message of a request's body. No method here takes more than one; compressed ones are refused, which the
/// flag says whatever the headers do.
pub fn read_frame(body: &[u8]) -> Result<&[u8], A2aFailure> {
    let one = || A2aFailure::new(A2aError::InvalidRequest, "the body must be one whole gRPC message");
    let (prefix, message) = body.split_first_chunk::<PREFIX>().ok_or_else(one)?;
    let [flag, length @ ..] = *prefix;
    if flag != 0 {
        let message = "compressed messages are not supported: send with the encoding identity";
        // gRPC wants UNIMPLEMENTED.
        return Err(A2aFailure::new(A2aError::MethodNotFound, message));
    }
    let is_whole = usize::try_from(u32::from_be_bytes(length)).is_ok_and(|length| length == message.len());
    is_whole.then_some(message).ok_or_else(one)
}

/// Returns the frame of a message.
pub fn write_frame(message: &[u8]) -> Vec<u8> {
    let length = u32::try_from(message.len()).unwrap_or(u32::MAX);
    let mut frame = Vec::with_capacity(PREFIX + message.len());
    frame.push(0);
    frame.extend_from_slice(&length.to_be_bytes());
    frame.extend_from_slice(message);
    frame
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_is_one_whole_message_that_is_not_compressed() {
        for message in [b"".as_slice(), b"abc", &[7; 70_000]] {
            assert_eq!(read_frame(&write_frame(message)), Ok(message));
        }
        assert_eq!(write_frame(b"abc"), b"\0\0\0\0\x03abc");
        let twice = [write_frame(b"a"), write_frame(b"b")].concat();
        for (body, error) in [
            (b"".as_slice(), A2aError::InvalidRequest),
            (b"\0\0\0\0", A2aError::InvalidRequest),
            (b"\0\0\0\0\x03ab", A2aError::InvalidRequest),
            (b"\0\0\0\0\x03abcd", A2aError::InvalidRequest),
            (b"\0\xff\xff\xff\xff", A2aError::InvalidRequest),
            (&twice, A2aError::InvalidRequest),
            (b"\x01\0\0\0\x03abc", A2aError::MethodNotFound),
        ] {
            assert_eq!(read_frame(body).unwrap_err().error, error, "{body:?}");
        }
    }
}
