/* libFuzzer target over everything that reads bytes of a stranger or of a peer:
 * the message decoder, the three handshake messages and the address parser. The
 * first byte chooses, the rest is what came from the socket. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "core/store/address.h"
#include "core/store/codec.h"

static void require(int truth)
{
    if (!truth)
        abort();
}

/* What decodes lies inside the input and encodes to the same bytes. */
static void fuzz_message(const uint8_t *bytes, size_t len)
{
    uint8_t header[ORIEL_MESSAGE_HEADER];
    oriel_message message;
    size_t size = 0;
    oriel_status st = oriel_message_decode(bytes, len, &message, &size);

    if (st == ORIEL_IN_PROGRESS)
        require(size > len && size <= ORIEL_MESSAGE_HEADER + ORIEL_MESSAGE_PAYLOAD_MAX);
    if (st != ORIEL_OK)
        return;
    require(size <= len && size == ORIEL_MESSAGE_HEADER + message.key_len + message.value_len);
    require((const uint8_t *)message.key == bytes + ORIEL_MESSAGE_HEADER);
    require(message.value + message.value_len == bytes + size);
    require(oriel_message_encode(&message, header) == ORIEL_OK);
    require(memcmp(header, bytes, sizeof(header)) == 0);
}

/* A prefix of what is taken is never refused: the server reads piece by piece. */
static void fuzz_handshake(const uint8_t *bytes, size_t len)
{
    const uint8_t *nonce, *mac;

    if (oriel_hello_decode(bytes, len, &nonce) == ORIEL_OK) {
        require(len >= ORIEL_HELLO_BYTES && nonce + ORIEL_NONCE_BYTES <= bytes + len);
        require(oriel_hello_decode(bytes, len / 2, &nonce) != ORIEL_ERR_INVALID);
    }
    if (oriel_proof_decode(bytes, len, &nonce, &mac) == ORIEL_OK) {
        require(len >= ORIEL_PROOF_BYTES && mac + ORIEL_SHA256_BYTES <= bytes + len);
        require(oriel_proof_decode(bytes, len / 2, &nonce, &mac) != ORIEL_ERR_INVALID);
    }
    if (oriel_verdict_decode(bytes, len, &mac) == ORIEL_OK)
        require(bytes[0] == 1 && mac + ORIEL_SHA256_BYTES <= bytes + len);
}

static void fuzz_address(const uint8_t *bytes, size_t len)
{
    oriel_address address, again;
    char formatted[ORIEL_ADDRESS_TEXT];
    char *text = malloc(len + 1);

    require(text != NULL);
    memcpy(text, bytes, len);
    text[len] = '\0';
    if (oriel_address_parse(text, &address) == ORIEL_OK) {
        oriel_address_format(&address, formatted);
        require(oriel_address_parse(formatted, &again) == ORIEL_OK);
        require(memcmp(&address, &again, sizeof(address)) == 0);
    }
    free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0)
        return 0;
    switch (data[0] % 3) {
    case 0:
        fuzz_message(data + 1, size - 1);
        break;
    case 1:
        fuzz_handshake(data + 1, size - 1);
        break;
    case 2:
        fuzz_address(data + 1, size - 1);
        break;
    }
    return 0;
}
