"""The checked-in messages say what proto/plugin.proto says."""

import subprocess
import sys
from pathlib import Path

from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet

from asp_plugin.wire import plugin_pb2

PROTO = Path(__file__).resolve().parents[3] / "proto"


def drop_derived_names(messages):
    """The compiler writes JSON names into a descriptor set and leaves them out of generated code."""
    for message in messages:
        drop_derived_names(message.nested_type)
        for field in message.field:
            field.ClearField("json_name")


def test_the_generated_messages_are_those_of_the_protocol(tmp_path):
    compiled = tmp_path / "plugin.pb"
    subprocess.run(
        [
            sys.executable,
            "-m",
            "grpc_tools.protoc",
            f"-Iasp_plugin/wire={PROTO}",
            f"--descriptor_set_out={compiled}",
            "asp_plugin/wire/plugin.proto",
        ],
        check=True,
    )
    wanted = FileDescriptorSet.FromString(compiled.read_bytes()).file[0]
    generated = FileDescriptorProto()
    plugin_pb2.DESCRIPTOR.CopyToProto(generated)
    drop_derived_names(wanted.message_type)
    assert generated == wanted, "run runtime/python/generate"


def test_the_lock_file_pins_what_the_requirements_pin():
    def pins(name):
        lines = (PROTO.parent / "runtime" / "python" / name).read_text().splitlines()
        return {line.split()[0] for line in lines if "==" in line}

    assert pins("requirements.txt") == {pin for pin in pins("requirements.lock") if "setuptools" not in pin}
