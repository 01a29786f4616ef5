package asp.plugin.worker;

import asp.plugin.Artifact;
import asp.plugin.PluginException;
import asp.plugin.v1.ArtifactData;
import asp.plugin.v1.ArtifactEmitted;
import asp.plugin.v1.ServerMessage;
import com.google.protobuf.ByteString;
import java.io.IOException;
import java.io.InputStream;
import java.net.URI;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.util.HashSet;
import java.util.HexFormat;
import java.util.Set;

/** The artifacts of one call: sent in pieces, in order, without gaps, within the plugin's disk limit. */
final class Uploads {
    private static final int MAX_ARTIFACTS = 1_000;

    private final Call call;
    private final long bound;

    // Guarded by this.
    private final Set<String> names = new HashSet<>();
    private long total;

    Uploads(Call call, long bound) {
        this.call = call;
        this.bound = bound;
    }

    /** Sends what `data` holds, `size` bytes as far as is known. Closes nothing. */
    String send(Artifact about, InputStream data, long size) throws IOException {
        Request request = call.request();
        reserve(about.name());
        String owner = request.taskId().isEmpty() ? request.requestId() : request.taskId();
        String uri = "report://" + owner + "/" + about.name();
        if (size > bound) {
            throw tooLarge();
        }
        MessageDigest digest = sha256();
        long offset = 0;
        for (byte[] piece = data.readNBytes(Limits.PIECE_BYTES);
                piece.length > 0;
                piece = data.readNBytes(Limits.PIECE_BYTES)) {
            count(piece.length);
            digest.update(piece);
            call.send(ServerMessage.newBuilder()
                    .setArtifactData(ArtifactData.newBuilder()
                            .setRequestId(request.requestId())
                            .setUri(uri)
                            .setOffset(offset)
                            .setData(ByteString.copyFrom(piece)))
                    .build());
            offset += piece.length;
        }
        announce(about, uri, offset, HexFormat.of().formatHex(digest.digest()));
        return uri;
    }

    String name(Artifact about, URI existing) {
        if (!existing.isAbsolute()) {
            throw new IllegalArgumentException("an artifact's URI is absolute");
        }
        announce(about, existing.toString(), 0, "");
        return existing.toString();
    }

    private void announce(Artifact about, String uri, long size, String sha256) {
        Request request = call.request();
        call.send(ServerMessage.newBuilder()
                .setArtifact(ArtifactEmitted.newBuilder()
                        .setRequestId(request.requestId())
                        .setTaskId(request.taskId())
                        .setType(Events.cut(about.type()))
                        .setUri(uri)
                        .setContentType(Events.cut(about.contentType()))
                        .setDescription(Events.cut(about.description()))
                        .setSize(size)
                        .setSha256(sha256))
                .build());
    }

    /** Two artifacts of one name would be one URI with two beginnings. */
    private synchronized void reserve(String name) {
        if (names.size() >= MAX_ARTIFACTS) {
            throw new PluginException("ARTIFACT_REFUSED", "a call has at most " + MAX_ARTIFACTS + " artifacts");
        }
        if (!names.add(name)) {
            throw new PluginException("ARTIFACT_REFUSED", "the call has an artifact `" + name + "` already");
        }
    }

    private synchronized void count(int bytes) {
        total += bytes;
        if (total > bound) {
            throw tooLarge();
        }
    }

    private PluginException tooLarge() {
        return new PluginException(
                "ARTIFACT_REFUSED", "the artifacts of a call hold at most " + bound + " bytes together");
    }

    private static MessageDigest sha256() {
        try {
            return MessageDigest.getInstance("SHA-256");
        } catch (NoSuchAlgorithmException impossible) {
            // Every Java platform has to have it (java.security.MessageDigest).
            throw new IllegalStateException(impossible);
        }
    }
}
