"""AES-CCM as BTHome seals its adverts: a nonce of 13 bytes, a tag of 4, nothing besides. It needs one block of AES."""

TAG = 4
_BLOCK = 16
_MAC_FLAGS = 9  # no associated data, 4 bytes of tag, 2 bytes of length
_KEY_STREAM_FLAGS = 1


def is_there():
    """Whether the board has AES."""
    try:
        cipher(bytes(_BLOCK))
    except ImportError:
        return False
    return True


def cipher(key):
    """AES of one block under a key: a function of 16 bytes. ImportError where the board has none."""
    from cryptolib import aes

    return aes(bytes(key), 1).encrypt  # 1: each block by itself


def seal(block, nonce, plain):
    """What is sent of `plain`: as many bytes, and the tag."""
    tag = _add(_mac(block, nonce, plain), block(_counter(nonce, 0)), TAG)
    sealed = bytearray()
    for at in range(0, len(plain), _BLOCK):
        part = plain[at : at + _BLOCK]
        sealed.extend(_add(part, block(_counter(nonce, at // _BLOCK + 1)), len(part)))
    sealed.extend(tag)
    return sealed


def _mac(block, nonce, plain):
    mac = block(bytes((_MAC_FLAGS,)) + nonce + len(plain).to_bytes(2, "big"))
    for at in range(0, len(plain), _BLOCK):
        part = plain[at : at + _BLOCK]
        mac = block(bytes(_add(part + bytes(_BLOCK - len(part)), mac, _BLOCK)))
    return mac


def _counter(nonce, number):
    return bytes((_KEY_STREAM_FLAGS,)) + nonce + number.to_bytes(2, "big")


def _add(one, other, count):
    found = bytearray(count)
    for index in range(count):
        found[index] = one[index] ^ other[index]
    return found
