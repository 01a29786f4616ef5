// A KMS plugin for tests: AES-256-GCM with keys in memory, behind Kubernetes' own server of the KMS plugin API v2.
//
// kms-plugin SOCKET FILE: the file has the id of the current key, so that a test rotates by writing it; a reason after the id
// makes the plugin report itself unhealthy.
package main

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"k8s.io/kms/pkg/service"
)

// annotation holds the nonce: a fully qualified domain name, as the API demands.
const annotation = "nonce.kms-plugin.example"

type plugin struct{ file string }

// aead returns the cipher of a key, which its id alone makes: a test needs no secret.
func aead(id string) (cipher.AEAD, error) {
	key := sha256.Sum256([]byte(id))
	block, err := aes.NewCipher(key[:])
	if err != nil {
		return nil, err
	}
	return cipher.NewGCM(block)
}

// state returns the current key and the health.
func (p *plugin) state() (string, string) {
	text, err := os.ReadFile(p.file)
	if err != nil {
		return "", err.Error()
	}
	key, reason, ill := strings.Cut(strings.TrimSpace(string(text)), " ")
	if ill {
		return key, reason
	}
	return key, "ok"
}

func (p *plugin) Status(context.Context) (*service.StatusResponse, error) {
	current, healthz := p.state()
	return &service.StatusResponse{Version: "v2", Healthz: healthz, KeyID: current}, nil
}

func (p *plugin) Encrypt(_ context.Context, _ string, data []byte) (*service.EncryptResponse, error) {
	current, _ := p.state()
	sealer, err := aead(current)
	if err != nil {
		return nil, err
	}
	nonce := make([]byte, sealer.NonceSize())
	if _, err := rand.Read(nonce); err != nil {
		return nil, err
	}
	return &service.EncryptResponse{
		Ciphertext:  sealer.Seal(nil, nonce, data, nil),
		KeyID:       current,
		Annotations: map[string][]byte{annotation: nonce},
	}, nil
}

func (p *plugin) Decrypt(_ context.Context, _ string, request *service.DecryptRequest) ([]byte, error) {
	opener, err := aead(request.KeyID)
	if err != nil {
		return nil, err
	}
	nonce := request.Annotations[annotation]
	if len(nonce) != opener.NonceSize() {
		return nil, errors.New("the annotation with the nonce is missing")
	}
	return opener.Open(nil, nonce, request.Ciphertext, nil)
}

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: kms-plugin SOCKET FILE")
		os.Exit(2)
	}
	p := &plugin{file: os.Args[2]}
	if err := service.NewGRPCService(os.Args[1], 10*time.Second, p).ListenAndServe(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
