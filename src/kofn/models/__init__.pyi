from kofn.models.base import Likelihood as Likelihood
from kofn.models.base import Message as Message
from kofn.models.base import Model as Model
from kofn.models.base import Reply as Reply
from kofn.models.base import Request as Request
from kofn.models.base import Sampling as Sampling
from kofn.models.factory import open_model as open_model
from kofn.models.local_folders import find_adapters as find_adapters
