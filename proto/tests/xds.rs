//! Messages as Envoy's own API definition (v3) encodes them, fields included that `xds/` leaves out.
//!
//! The bytes were made by protoc from Envoy's definition, not by the code under test.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

use asp_proto::xds::envoy::service::discovery::v3::{DiscoveryRequest, DiscoveryResponse};
use prost::Message;
use prost_types::value::Kind;

/// What Envoy sends: beside our fields a locality, its build, an extension, a feature, and details of the error.
const REQUEST: &str = "\
    0a0a312d303130313031303112d6010a0265311201631a110a0f0a04706f6f6c12071a05686561767922060a01721201 \
    7a3205656e766f7942240a0408011024121c0a1a0a0b73736c2e76657273696f6e120b1a09426f72696e6753534c4a59 \
    0a17656e766f792e66696c746572732e687474702e7761736d1212656e766f792e66696c746572732e68747470322a65 \
    6e766f792e657874656e73696f6e732e66696c746572732e687474702e7761736d2e76332e5761736d522a656e766f79 \
    2e6c622e646f65735f6e6f745f737570706f72745f6f76657270726f766973696f6e696e671a086173702d6564676522 \
    3d747970652e676f6f676c65617069732e636f6d2f656e766f792e636f6e6669672e636f72652e76332e547970656445 \
    7874656e73696f6e436f6e6669672a06656467652d313215080d1207726566757365641a080a03742f78120179";

/// Beside our fields: canary, and who the control plane is.
const RESPONSE: &str = "\
    0a013112350a2e747970652e676f6f676c65617069732e636f6d2f676f6f676c652e70726f746f6275662e4279746573 \
    56616c756512030a016118012201742a016e32030a0163";

fn bytes(vector: &str) -> Vec<u8> {
    let digits: Vec<u8> = vector.bytes().filter(|byte| !byte.is_ascii_whitespace()).collect();
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
    digits.chunks(2).map(byte).collect()
}

#[test]
fn a_request_of_envoy_is_read_and_what_we_do_not_know_of_it_is_skipped() {
    let request = DiscoveryRequest::decode(bytes(REQUEST).as_slice()).unwrap();
    assert_eq!(request.version_info, "1-01010101");
    assert_eq!(request.resource_names, ["asp-edge"]);
    assert_eq!(request.type_url, "type.googleapis.com/envoy.config.core.v3.TypedExtensionConfig");
    assert_eq!(request.response_nonce, "edge-1");
    let node = request.node.unwrap();
    assert_eq!(
        (node.id.as_str(), node.cluster.as_str(), node.user_agent_name.as_str()),
        ("e1", "c", "envoy")
    );
    let pool = node.metadata.unwrap().fields.remove("pool").unwrap();
    assert_eq!(pool.kind, Some(Kind::StringValue("heavy".into())));
    let error = request.error_detail.unwrap();
    assert_eq!((error.code, error.message.as_str()), (13, "refused"));
}

#[test]
fn a_response_of_another_control_plane_is_read_too() {
    let response = DiscoveryResponse::decode(bytes(RESPONSE).as_slice()).unwrap();
    assert_eq!(response.version_info, "1");
    assert_eq!((response.type_url.as_str(), response.nonce.as_str()), ("t", "n"));
    let value = Vec::<u8>::decode(response.resources[0].value.as_slice()).unwrap();
    assert_eq!(value, b"a");
}
