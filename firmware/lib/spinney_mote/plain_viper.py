"""What viper code needs to run as plain Python under CPython."""


def viper(function):
    return function


def ptr8(buffer):
    return buffer


def ptr32(buffer):
    return memoryview(buffer).cast("i")
