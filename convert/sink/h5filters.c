/*
 * Filters of chunks (h5util.h): shuffle, deflate, zstd. Called by the sink for each chunk. One thread.
 *
 * A chunk that is written whole is coded here and given to H5Dwrite_chunk: the library's own way copies it into its cache first. Bytes are those that the library's filters would make, so its readers
 * undo them. zstd is a filter that HDF5 does not bring along: readers need its plugin (Debian: hdf5-filter-plugin-zstd-serial, PyPI: hdf5plugin); here it is registered, for what
 * the library codes or reads itself.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>
#include <zstd.h>

#include "convert/sink/h5util.h"

/* As filters are called by HDF5: nbytes of *buf become what is returned; 0 fails. */
static size_t zstd_filter(unsigned flags, size_t nvalues, const unsigned values[], size_t nbytes, size_t *cap, void **buf)
{
    bool back = flags & H5Z_FLAG_REVERSE;
    unsigned long long room = back ? ZSTD_getFrameContentSize(*buf, nbytes) : ZSTD_compressBound(nbytes);
    void *out;
    size_t n;

    if (room == ZSTD_CONTENTSIZE_ERROR || room == ZSTD_CONTENTSIZE_UNKNOWN || room > UINT32_MAX)
        return 0; /* chunks are below 4 GiB */
    out = malloc(room ? room : 1);
    if (!out)
        return 0;
    n = back ? ZSTD_decompress(out, room, *buf, nbytes) : ZSTD_compress(out, room, *buf, nbytes, nvalues ? (int)values[0] : 3);
    if (ZSTD_isError(n) || (!back && n >= nbytes && (flags & H5Z_FLAG_OPTIONAL))) { /* netCDF has no optional ones: then it has to grow */
        free(out);
        return 0;
    }
    free(*buf);
    *buf = out;
    *cap = room;
    return n;
}

static const H5Z_class2_t zstd_class = {
    .version = H5Z_CLASS_T_VERS, .id = CV_H5_ZSTD, .encoder_present = 1, .decoder_present = 1, .name = "zstd", .filter = zstd_filter};

void cv_h5_begin(void)
{
    static bool done;

    if (done)
        return;
    done = true;
    H5dont_atexit(); /* what could not be written, to a disk that is full, would be tried again at exit */
    H5Eset_auto2(H5E_DEFAULT, NULL, NULL);
    if (H5Zfilter_avail(CV_H5_ZSTD) <= 0)
        H5Zregister(&zstd_class);
}

herr_t cv_h5_filters(hid_t dcpl, const struct cv_sink_options *o, size_t element_bytes)
{
    unsigned level = (unsigned)o->level;
    herr_t rc = 0;

    if (o->shuffle && element_bytes > 1)
        rc = H5Pset_shuffle(dcpl);
    if (rc >= 0 && o->codec == CV_CODEC_DEFLATE)
        rc = H5Pset_deflate(dcpl, level);
    if (rc >= 0 && o->codec == CV_CODEC_ZSTD)
        rc = H5Pset_filter(dcpl, CV_H5_ZSTD, H5Z_FLAG_OPTIONAL, 1, &level);
    if (rc >= 0 && o->fletcher32)
        rc = H5Pset_fletcher32(dcpl);
    return rc;
}

size_t cv_h5_room(size_t bytes)
{
    size_t zstd = ZSTD_compressBound(bytes), deflate = compressBound(bytes);

    return zstd > deflate ? zstd : deflate;
}

/* All first bytes of elements, all second ones, …: a width that is known when compiling is several times as fast. */
#define SHUFFLE(width)                                                               \
    static void shuffle_##width(const uint8_t *in, size_t n, uint8_t *restrict out)  \
    {                                                                                \
        for (size_t i = 0; i < n; i++)                                               \
            for (size_t k = 0; k < (width); k++)                                     \
                out[k * n + i] = in[i * (width) + k];                                \
    }
SHUFFLE(2)
SHUFFLE(4)
SHUFFLE(8)
SHUFFLE(16)

static void shuffle(const uint8_t *in, size_t bytes, size_t size, uint8_t *out)
{
    size_t n = bytes / size;

    if (size == 2)
        shuffle_2(in, n, out);
    else if (size == 4)
        shuffle_4(in, n, out);
    else if (size == 8)
        shuffle_8(in, n, out);
    else
        shuffle_16(in, n, out);
}

/* HDF5's form of it: 16-bit words, the first byte the more significant one, sums folded every 360 words. */
static uint32_t fletcher32(const uint8_t *data, size_t bytes)
{
    uint32_t one = 0, two = 0;

    for (size_t words = bytes / 2; words;) {
        size_t n = words > 360 ? 360 : words;

        words -= n;
        for (; n; n--, data += 2) {
            one += (uint32_t)data[0] << 8 | data[1];
            two += one;
        }
        one = (one & 0xffff) + (one >> 16);
        two = (two & 0xffff) + (two >> 16);
    }
    if (bytes % 2) {
        one += (uint32_t)*data << 8;
        two += one;
        one = (one & 0xffff) + (one >> 16);
        two = (two & 0xffff) + (two >> 16);
    }
    one = (one & 0xffff) + (one >> 16);
    two = (two & 0xffff) + (two >> 16);
    return two << 16 | one;
}

/* The checksum stands behind the chunk, whatever filters were before it. */
void cv_h5_sum(uint8_t *data, size_t len)
{
    uint32_t sum = fletcher32(data, len);

    for (unsigned i = 0; i < CV_H5_SUM_BYTES; i++)
        data[len + i] = (uint8_t)(sum >> 8 * i);
}

int cv_h5_encode(const struct cv_sink_options *o, const uint8_t *in, size_t bytes, size_t element_bytes, uint8_t *shuffled, uint8_t *packed, const uint8_t **out, size_t *out_bytes, uint32_t *mask)
{
    bool sorted = o->shuffle && element_bytes > 1;
    uLongf n = compressBound(bytes);
    size_t coded = 0;

    *out = in;
    *out_bytes = bytes;
    *mask = 0;
    if (sorted) {
        shuffle(in, bytes, element_bytes, shuffled);
        *out = shuffled;
    }
    if (o->codec == CV_CODEC_NONE)
        return 0;
    if (o->codec == CV_CODEC_DEFLATE) {
        int rc = compress2(packed, &n, *out, bytes, o->level);

        if (rc == Z_MEM_ERROR)
            return -ENOMEM;
        coded = rc == Z_OK ? n : bytes;
    } else {
        coded = ZSTD_compress(packed, cv_h5_room(bytes), *out, bytes, o->level);
        if (ZSTD_isError(coded))
            return -ENOMEM;
    }
    if (coded < bytes) {
        *out = packed;
        *out_bytes = coded;
    } else {
        *mask = 1u << (sorted ? 1 : 0); /* the codec's place in the pipeline: it is stored as it was before that */
    }
    return 0;
}
